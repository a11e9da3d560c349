"""regression: fitted hazards, evaluated in numpy, corrected online, ranked without a bias."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec import Capability, Level, StepContext, StepOutcome, check_policy
from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.regression.features import RequestHistory
from adaptive_spec.policies.regression.hazards import FittedHazards
from adaptive_spec.policies.regression.heads import evaluator
from adaptive_spec.policies.regression.model_file import (
    BoostingHead,
    Feature,
    LogisticHead,
    RegressionModel,
    default_model,
    load_model,
)
from adaptive_spec.policy import Policy, build_policy

from .closed_loop import GPU, LAPTOP, alike, run

REGRESSION = "adaptive_spec.policies.regression.policy:RegressionPolicy"


def regression(**options: Any) -> Policy:
    return build_policy(REGRESSION, options, seed=1)


def feature(name: str, low: float = -3.0, high: float = 3.0) -> Feature:
    return Feature(name=name, mean=0.5, scale=2.0, low=low, high=high)


def boosted() -> BoostingHead:
    return BoostingHead(
        features=[feature("history"), feature("recent")],
        base=0.2,
        depth=2,
        node_feature=[[0, -1, 1], [1, 0, 0]],
        threshold=[[0.1, 1.5, -0.2], [0.0, 0.3, -0.6]],
        leaf=[[0.1, -0.2, 0.3, 0.4], [-0.5, 0.6, 0.7, -0.8]],
    )


def known_model(**changes: Any) -> RegressionModel:
    """Position hazard .5 throughout; the drafts head believes the confidence."""
    nothing = LogisticHead(features=[], intercepts=[0.0] * 4, weights=[], slopes=[])
    believing = LogisticHead(
        features=[Feature(name="confidence", mean=0.0, scale=1.0, low=-9.0, high=9.0)],
        intercepts=[0.0] * 4,
        weights=[1.0],
        slopes=[0.0],
    )
    fields: dict[str, Any] = {"average": [0.5] * 4, "history": nothing, "drafts": believing}
    return RegressionModel(**(fields | changes))


def written(model: RegressionModel, folder: Path) -> str:
    path = folder / "model.json"
    path.write_bytes(msgspec.json.encode(model))
    return str(path)


def context(batch: int, kmax: int, step: int = 0, **changes: Any) -> StepContext:
    fields: dict[str, Any] = {
        "step": step,
        "capability": Capability(level=Level.FULL, max_draft_tokens=kmax),
        "request_ids": [f"r{i}" for i in range(batch)],
        "slots": np.arange(batch, dtype=np.int64),
        "context_tokens": np.full(batch, 100, dtype=np.int64),
        "draft_available": np.full(batch, kmax, dtype=np.int64),
        "draft_possible": np.full(batch, kmax, dtype=np.int64),
        "engine_k": kmax,
        "tpot_target": np.full(batch, np.inf),
        "task": np.full(batch, -1, dtype=np.int64),
        "temperature": np.zeros(batch),
        "now": 0.01 * step,
    }
    return StepContext(**(fields | changes))


def outcome(of: StepContext, verified: np.ndarray, accepted: np.ndarray) -> StepOutcome:
    tokens = of.batch_size + int(verified.sum())
    return StepOutcome(
        step=of.step,
        slots=of.slots,
        verified=verified,
        accepted=accepted,
        emitted=accepted + 1,
        batch_size=of.batch_size,
        batch_tokens=tokens,
        context_tokens=int(of.context_tokens.sum()),
        prefill_tokens=0,
        draft_depth=of.capability.max_draft_tokens,
        ragged=False,
        seconds=0.01 + 1e-4 * tokens,
        now=of.now,
    )


# --------------------------------------------------------------------- contract


def test_it_keeps_the_contract_with_boosted_trees(tmp_path: Path) -> None:
    model = written(known_model(history=boosted(), drafts=None), tmp_path)
    options = {"model": model}
    check_policy(lambda seed: build_policy(REGRESSION, options, seed=seed), levels=[Level.FULL])


def test_scikit_learn_is_never_imported_where_the_policy_runs() -> None:
    program = (
        "import sys\n"
        "from adaptive_spec import build_policy, check_policy, Level\n"
        f"check_policy(lambda s: build_policy({REGRESSION!r}, seed=s), levels=[Level.UNIFORM])\n"
        "found = {name.partition('.')[0] for name in sys.modules}\n"
        "assert 'adaptive_spec' in found\n"
        "assert not found & {'sklearn', 'scipy', 'joblib', 'torch'}, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_without_a_model_the_shipped_one_is_used_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        regression()
    assert "adaptive-spec fit" in caplog.text
    assert default_model().calibration is not None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("{", "adaptive-spec fit"),
        ('{"schema": 2}', "schema"),
        ("[1, 2]", "adaptive-spec fit"),
    ],
)
def test_a_model_that_cannot_be_read_is_one_clear_error(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "model.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PolicyError, match=says) as caught:
        regression(model=str(path))
    assert str(path) in str(caught.value)
    assert "adaptive-spec fit" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (["average"], [0.5, 1.5], "average"),
        (["history", "intercepts"], [0.0], "intercepts"),
        (["history", "weights"], [1.0], "differ in length"),
        (["drafts", "features", 0, "name"], "token_probability", "unknown feature"),
        (["drafts", "weights"], [1e300], "sensible"),
        (["drafts", "features", 0, "scale"], 0.0, "scale"),
        (["tasks"], {"code": 1e9}, "tasks"),
    ],
)
def test_a_model_that_does_not_fit_together_is_refused(
    tmp_path: Path, place: list[Any], value: Any, says: str
) -> None:
    content = json.loads(msgspec.json.encode(known_model()))
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(PolicyError, match=says):
        load_model(path)


@pytest.mark.parametrize(
    "change",
    [
        {"node_feature": [[0, -1, 2], [1, 0, 0]]},
        {"leaf": [[0.1, -0.2, 0.3], [-0.5, 0.6, 0.7, -0.8]]},
        {"threshold": [[0.1, 1.5, -0.2]]},
        {"depth": 3},
    ],
)
def test_trees_that_are_not_whole_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    content = json.loads(msgspec.json.encode(known_model(history=boosted())))
    content["history"].update(change)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(PolicyError):
        load_model(path)


# ------------------------------------------------------------------- evaluation


def scaled(head: Any, number: int, value: float) -> float:
    found = head.features[number]
    if np.isnan(value):
        return 0.0
    return float((min(max(value, found.low), found.high) - found.mean) / found.scale)


def walked(head: BoostingHead, position: int, values: list[float]) -> float:
    """Down each tree, one node at a time."""
    inputs = [float(position), *(scaled(head, n, v) for n, v in enumerate(values))]
    total = head.base
    for features, thresholds, leaves in zip(
        head.node_feature, head.threshold, head.leaf, strict=True
    ):
        node = 0
        while node < len(features):
            right = inputs[features[node] + 1] > thresholds[node]
            node = 2 * node + 1 + int(right)
        total += leaves[node - len(features)]
    return total


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_trees_give_what_walking_down_them_gives(data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, 4))
    trees = data.draw(st.integers(1, 5))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    inner = 2**depth - 1
    head = BoostingHead(
        features=[feature("history"), feature("confidence")],
        base=0.3,
        depth=depth,
        node_feature=random.integers(-1, 2, (trees, inner)).tolist(),
        threshold=np.float32(random.normal(size=(trees, inner))).tolist(),
        leaf=np.float32(random.normal(size=(trees, inner + 1))).tolist(),
    )
    history, confidence = random.normal(size=7) * 3, random.normal(size=(5, 7)) * 3
    history[2] = confidence[1, 3] = np.nan
    logits = evaluator(head, 5).logits({"history": history, "confidence": confidence}, 7)
    for position in range(5):
        for request in range(7):
            expected = walked(head, position, [history[request], confidence[position, request]])
            assert logits[position, request] == pytest.approx(expected, abs=1e-5)


def test_the_logistic_head_is_its_formula_and_deeper_positions_count_as_the_last() -> None:
    head = LogisticHead(
        features=[feature("history"), feature("confidence")],
        intercepts=[0.1, -0.4, 0.3],
        weights=[0.7, 1.2],
        slopes=[0.1, -0.2],
    )
    history = np.array([0.2, 9.0, np.nan])
    confidence = np.random.default_rng(0).normal(size=(5, 3))
    logits = evaluator(head, 5).logits({"history": history, "confidence": confidence}, 3)
    for j in range(5):
        for i in range(3):
            at = min(j, 2)
            expected = head.intercepts[at]
            expected += (0.7 + 0.1 * at) * scaled(head, 0, history[i])
            expected += (1.2 - 0.2 * at) * scaled(head, 1, confidence[j, i])
            assert logits[j, i] == pytest.approx(expected)


# ---------------------------------------------------------------------- history


@pytest.mark.parametrize("k", [1, 2, 4])
def test_history_of_an_average_request_is_near_zero_whatever_its_k(k: int) -> None:
    random = np.random.default_rng(k)
    average = np.array([0.4, 0.5, 0.7, 0.8])
    past = RequestHistory(average)
    slots = np.arange(400, dtype=np.int64)
    verified = np.full(400, k, dtype=np.int64)
    for _ in range(40):
        hits = random.random((400, 4)) < average
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), verified)
        past.learn(slots, verified, accepted)
    assert abs(float(past.features(slots)[0].mean())) < 0.04


def test_a_request_that_does_better_than_the_others_has_a_higher_history() -> None:
    past = RequestHistory(np.array([0.5, 0.5]))
    slots = np.array([0, 200], dtype=np.int64)  # beyond the rows there are at first
    for _ in range(20):
        past.learn(slots, np.array([2, 2]), np.array([2, 0]))
    history = past.features(slots)[0]
    assert history[0] > 1.0 > -1.0 > history[1]
    past.forget(slots)
    assert not past.features(slots).any()


def test_steps_without_drafts_are_only_progress() -> None:
    past = RequestHistory(np.array([0.5]))
    slots = np.array([0], dtype=np.int64)
    past.learn(slots, np.array([1]), np.array([1]))
    before = past.features(slots)
    past.learn(slots, np.array([0]), np.array([0]))
    after = past.features(slots)
    assert (after[:2] == before[:2]).all()
    assert after[2] > before[2]


# ------------------------------------------------------------------- correction


def fitted(model: RegressionModel, kmax: int = 4) -> FittedHazards:
    return FittedHazards(model, kmax, tasks=[], discount=0.98, first_evidence=10.0)


def test_a_drafter_unlike_the_fitted_one_is_learned_online() -> None:
    random = np.random.default_rng(0)
    hazards = fitted(known_model())
    for step in range(150):
        now = context(16, 4, step)
        hazards.survival(now)
        hits = random.random((16, 4)) < 0.85
        accepted = hits.cumprod(axis=1).sum(axis=1).astype(np.int64)
        hazards.learn(outcome(now, np.full(16, 4, dtype=np.int64), accepted))
    survival = hazards.survival(context(16, 4, 999)).stale.mean(axis=1)
    assert survival == pytest.approx(0.85 ** np.arange(1, 5), abs=0.05)


def test_leaving_out_drafts_of_low_confidence_does_not_bias_what_history_expects() -> None:
    """Half of the drafts at each position show .9 and half .1, and both keep their word."""
    random = np.random.default_rng(1)
    hazards = fitted(known_model())
    batch = 64
    for step in range(120):
        shown = np.where(random.random((batch, 4)) < 0.5, 0.9, 0.1)
        now = context(batch, 4, step, confidence=shown)
        hazards.survival(now)
        kept = (shown > 0.5).cumprod(axis=1).sum(axis=1).astype(np.int64)
        hits = (random.random((batch, 4)) < shown).cumprod(axis=1).sum(axis=1)
        hazards.learn(outcome(now, kept, np.minimum(hits, kept).astype(np.int64)))
    stale = hazards.survival(context(batch, 4, 999)).stale
    assert float(stale[0].mean()) == pytest.approx(0.5, abs=0.06)


def test_outcomes_of_unknown_or_reordered_requests_are_put_in_their_place() -> None:
    hazards = fitted(known_model())
    now = context(3, 4, 0)
    hazards.survival(now)
    taken = msgspec.structs.replace(
        outcome(now, np.array([4, 4]), np.array([4, 0])), slots=np.array([2, 77])
    )
    hazards.learn(taken)
    survival = hazards.survival(context(3, 4, 1)).stale[0]
    assert survival[2] > survival[0] == survival[1]


@pytest.mark.parametrize("matters", [True, False])
def test_how_much_the_features_matter_here_is_learned_online(matters: bool) -> None:
    """Where requests are alike, a model that tells them apart makes too much of chance."""
    random = np.random.default_rng(2)
    telling = LogisticHead(
        features=[Feature(name="temperature", mean=0.5, scale=0.5, low=0.0, high=1.0)],
        intercepts=[0.0] * 4,
        weights=[-1.0],
        slopes=[0.0],
    )
    hazards = fitted(known_model(history=telling, drafts=None))
    temperature = np.repeat([0.0, 1.0], 16)
    skill = np.where(temperature > 0.5, 0.27, 0.73) if matters else np.full(32, 0.5)
    for step in range(150):
        # Requests come and go: nothing is learned of one of them.
        now = context(32, 4, step, temperature=temperature)
        hazards.survival(now)
        hits = (random.random((32, 4)) < skill[:, None]).cumprod(axis=1).sum(axis=1)
        hazards.learn(outcome(now, np.full(32, 4), hits.astype(np.int64)))
        hazards.forget(now.slots)
    found = hazards.survival(context(32, 4, 999, temperature=temperature)).stale[0]
    apart = found[:16].mean() - found[16:].mean()
    assert apart == pytest.approx(0.46 if matters else 0.0, abs=0.08)


# ------------------------------------------------------------------ live ranking


def test_confident_drafts_are_verified_and_doubtful_ones_are_not(tmp_path: Path) -> None:
    policy = regression(model=written(known_model(), tmp_path), explore=False)
    warm = context(8, 4)
    policy.plan(warm)
    for step in range(8):
        now = context(8, 4, step)
        policy.plan(now)
        policy.observe(outcome(now, np.full(8, step % 5), np.minimum(step % 5, [1, 2, 0, 1] * 2)))
    shown = np.full((8, 4), 0.97)
    shown[4:] = 0.03
    plan = policy.plan(context(8, 4, 20, confidence=shown))
    assert plan.reason == "ranked by confidence"
    assert plan.verify[:4].min() > plan.verify[4:].max()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), request_=st.integers(0, 5), position=st.integers(0, 3))
def test_whether_a_draft_is_verified_does_not_depend_on_what_follows_its_token(
    seed: int, request_: int, position: int
) -> None:
    """Confidences deeper than a position depend on its token; they must not decide on it."""
    random = np.random.default_rng(seed)
    shown = random.uniform(0.02, 0.98, (6, 4))
    changed = shown.copy()
    changed[request_, position + 1 :] = random.uniform(0.02, 0.98, 3 - position)
    admitted, depths = [], []
    for signal in (shown, changed):
        policy = regression(explore=False)
        for step in range(6):
            now = context(6, 4, step)
            policy.plan(now)
            policy.observe(outcome(now, np.full(6, step % 5), np.full(6, min(step % 5, 3))))
        plan = policy.plan(context(6, 4, 20, confidence=signal))
        admitted.append(plan.verify > position)
        depths.append(plan.draft_depth)
    assert depths[0] == depths[1]
    assert admitted[0][request_] == admitted[1][request_]


# ------------------------------------------------------------------- closed loop


@pytest.mark.parametrize(
    ("machine", "concurrency", "hazard"), [(LAPTOP, 4, 0.5), (GPU, 16, 0.8), (LAPTOP, 16, 0.1)]
)
def test_with_the_shipped_model_it_comes_near_the_best_fixed_k(
    machine: Any, concurrency: int, hazard: float
) -> None:
    setting: dict[str, Any] = {
        "concurrency": concurrency,
        "hazards": lambda r: alike(hazard)(r)[:6],
        "machine": machine,
        "steps": 400,
    }
    fixed = [build_policy("static", {"k": k}) for k in range(7)]
    best = max(run(policy, **setting).tokens_per_second for policy in fixed)
    reached = run(regression(), warmup=400, **setting)
    assert reached.tokens_per_second >= 0.95 * best


# ------------------------------------------------------------------------- state


def test_state_is_taken_up_again_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    setting: dict[str, Any] = {"concurrency": 4, "machine": LAPTOP, "steps": 200}
    policy = regression()
    run(policy, hazards=lambda r: alike(0.8)(r)[:6], **setting)
    state = json.loads(json.dumps(policy.state(), allow_nan=False))
    fresh = regression()
    fresh.restore(state)
    assert fresh.state() == state
    for change in (
        {"schema": 9},
        {"corrections": None},
        {"corrections": {"history": {}, "drafts": {}, "average": {}}},
        {"profile": {"tokens": []}},
    ):
        with pytest.raises(PolicyError):
            plan_after(state | change, kmax=6)
    with pytest.raises(PolicyError):
        plan_after(state, kmax=5)


def plan_after(state: dict[str, Any], kmax: int) -> None:
    policy = regression()
    policy.restore(state)
    policy.plan(context(3, kmax, 0))
