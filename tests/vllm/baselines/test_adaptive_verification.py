"""Our form of vLLM's adaptive verification against vLLM's own functions, step by step."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.policy import Policy
from adaptive_spec.sim.baselines.engines.vllm_adaptive_verification import (
    REFIT_STEPS,
    CostCurve,
    VllmAcceptanceEstimator,
    VllmAdaptiveVerificationOptions,
    VllmAdaptiveVerificationPolicy,
)
from adaptive_spec.step import StepContext
from tests import steps

pytestmark = pytest.mark.engine

PACKAGE = "vllm.v1.worker.gpu.spec_decode"
KMAX = 5
SLOTS = 24


@pytest.fixture(scope="module")
def upstream() -> Any:
    """vLLM's module of adaptive verification."""
    return pytest.importorskip(
        f"{PACKAGE}.adaptive_verification",
        reason="this vLLM has no adaptive verification",
        exc_type=ImportError,
    )


def coefficients(estimator: VllmAcceptanceEstimator) -> dict[str, list[float]]:
    return {"slope": estimator.slope.tolist(), "intercept": estimator.intercept.tolist()}


def theirs_and_ours(
    tmp_path: Path, features: Any, verified: Any, accepted: Any
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Coefficients of vLLM's estimator and of ours, at first and after each refit."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("the kernels of vLLM's estimator need Triton")
    file = tmp_path / "rounds.npz"
    np.savez(file, features=features, verified=verified, accepted=accepted)
    script = Path(__file__).with_name("run_estimator.py")
    ran = subprocess.run(
        [sys.executable, script, file], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    theirs = json.loads(ran.stdout.splitlines()[-1])
    estimator = VllmAcceptanceEstimator(features.shape[2])
    ours = [coefficients(estimator)]
    for step in range(len(features)):
        predicted = estimator.predict(features[step])
        estimator.add_judged(features[step], predicted, verified[step], accepted[step])
        if (step + 1) % REFIT_STEPS == 0:
            ours.append(coefficients(estimator))
    return list(zip(theirs, ours, strict=True))


@pytest.mark.long
def test_the_estimator_fits_what_vllms_fits(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    steps, batch = 2 * REFIT_STEPS + 10, 8
    features = random.normal(1.0, 2.0, (steps, batch, KMAX))
    hits = random.random(features.shape) < 1.0 / (1.0 + np.exp(0.5 - 0.9 * features))
    verified = random.integers(0, KMAX + 1, (steps, batch))
    accepted = np.minimum(np.logical_and.accumulate(hits, axis=2).sum(axis=2), verified)
    rounds = theirs_and_ours(tmp_path, features, verified, accepted)
    assert len(rounds) == 3
    for theirs, ours in rounds:
        assert ours["slope"] == pytest.approx([theirs["slope"]] * KMAX, abs=1e-4)
        assert ours["intercept"] == pytest.approx(theirs["intercept"], abs=1e-4)
    assert rounds[-1][1]["slope"][0] > 0.7  # it has moved from .5 toward the truth


def test_a_slope_that_would_turn_negative_is_not_taken_over(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    features = random.normal(0.0, 3.0, (REFIT_STEPS, 8, 2))
    accepted = np.where(features[:, :, 0] < 0.0, 1, 0)  # the surer, the worse
    verified = np.ones_like(accepted)
    for theirs, ours in theirs_and_ours(tmp_path, features, verified, accepted):
        assert theirs["slope"] == ours["slope"][0] == 0.5
        assert ours["intercept"] == pytest.approx(theirs["intercept"], abs=1e-4)


def test_the_cost_tables_are_vllms(upstream: Any) -> None:
    random = np.random.default_rng(2)
    for _ in range(100):
        count = int(random.integers(2, 8))
        sizes = np.sort(random.permutation(300)[:count] + 1).tolist()
        costs = (np.arange(count) + random.normal(0, 2, count) + 5).tolist()
        limit = int(random.choice([0, sizes[0], sizes[count // 2], sizes[-1]]))
        curve = list(zip(sizes, costs, strict=True))
        draft, verify = upstream.build_cost_tables_from_curves(curve, curve, 400, 500, limit)
        ours = CostCurve(sizes, costs, limit)
        assert np.maximum(ours.at(np.arange(401)), 0.0).tolist() == draft.tolist()
        assert np.maximum(ours.at(np.arange(501)), 1e-6).tolist() == verify.tolist()


class _Recorded:
    """vLLM's manager with given tables, without the GPU that its constructor needs."""

    def __init__(self, upstream: Any, tables: tuple[Any, Any]) -> None:
        self.manager = object.__new__(upstream.AdaptiveVerificationManager)
        manager = self.manager
        manager.req_states = SimpleNamespace(
            req_id_to_index={f"r{i}": i for i in range(SLOTS)},
            num_computed_tokens_np=np.full(SLOTS, 100),
            prefill_len=SimpleNamespace(np=np.full(SLOTS, 50)),
        )
        manager.num_speculative_steps = KMAX
        manager.num_bonus_tokens = 1
        manager._max_total_logits = 1 << 20
        manager.cost_tables = tables
        manager._stale_idx = 0
        manager._stale_confidences = [SimpleNamespace(np=np.ones((SLOTS, KMAX), np.float32))]
        manager._batch_budget = None

    def budget(self, slots: Any, at_hand: Any, stale: Any) -> int:
        """Drafts to verify, by these confidences of the round before."""
        self.manager._stale_confidences[0].np[slots] = stale
        names = [f"r{slot}" for slot in slots]
        tokens = {name: int(k) + 1 for name, k in zip(names, at_hand, strict=True)}
        drafts = {name: [0] * int(k) for name, k in zip(names, at_hand, strict=True)}
        total = self.manager.get_num_tokens(tokens, drafts)
        return int(total) - len(names)


def test_a_run_decides_what_vllm_decides(upstream: Any) -> None:
    """The same batches of requests that come and go, step by step."""
    import torch

    sizes, costs = [1, 2, 4, 8, 16, 32, 64, 96], [5.0, 5.1, 5.3, 5.6, 6.4, 8.0, 12.0, 17.0]
    curve = list(zip(sizes, costs, strict=True))
    tables = upstream.build_cost_tables_from_curves(curve, curve, SLOTS, 400, 64)
    theirs = _Recorded(upstream, tables)
    policy = VllmAdaptiveVerificationPolicy(VllmAdaptiveVerificationOptions())
    capability = Capability(level=Level.VERIFY, max_draft_tokens=KMAX)
    checked: Policy = policy
    checked.plan(_context(0, capability, np.zeros(0, np.int64), np.zeros(0), np.zeros((0, KMAX))))
    policy._tables = (CostCurve(sizes, costs, 64), CostCurve(sizes, costs, 64))
    policy._times = SimpleNamespace(ready=True, unmeasured=lambda context, room: None)
    before = np.ones((SLOTS, KMAX))
    random = np.random.default_rng(4)
    budgets = []
    for step in range(1, 300):
        batch = int(random.integers(1, SLOTS))
        slots = np.sort(random.permutation(SLOTS)[:batch])
        at_hand = random.integers(0, KMAX + 1, batch)
        # Exact in vLLM's 32 bits, and without ties: torch breaks those at random.
        shown = random.random((batch, KMAX)).astype(np.float32).astype(np.float64)
        live = policy._estimator.predict(np.log(shown) - np.log1p(-shown))
        budget = theirs.budget(slots, at_hand, before[slots])
        budgets.append(budget / max(int(at_hand.sum()), 1))
        plan = checked.plan(_context(step, capability, slots, at_hand, shown))
        assert int(plan.verify.sum()) == budget
        if 0 < budget < at_hand.sum():
            capacities = torch.tensor(at_hand, dtype=torch.int32)
            upstream._assign_draft_token_budget(
                torch.tensor(live), torch.arange(batch), capacities, budget, KMAX
            )
            assert plan.verify.tolist() == capacities.tolist()
        before[slots] = live
        if step % 5 == 0:  # a request ends, another takes its slot
            ended = int(slots[0])
            before[ended] = 1.0
            policy.forget(np.array([ended]))
    assert 0.1 < np.mean(budgets) < 0.9


def _context(
    step: int, capability: Capability, slots: Any, at_hand: Any, confidence: Any
) -> StepContext:
    return steps.context(
        capability=capability,
        step=step,
        slots=slots,
        draft_available=at_hand,
        confidence=confidence,
    )
