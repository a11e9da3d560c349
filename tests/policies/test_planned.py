"""What a planned policy passes on between its parts, step by step."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.planning.exploration import first_k
from adaptive_spec.policies.planning.tpot_targets import OUT_OF_REACH
from adaptive_spec.step import Capability, FinishedStep, Kind, Level, Mode, SpecPlan
from tests.measured_steps import step
from tests.policies.planning.test_step_forecast import FULL, context

BATCH = 4


def run_step(policy: GoodputPolicy, n: int, **changes: Any) -> FinishedStep:
    """One step of four requests whose drafts are all accepted; what `changes` says ran."""
    of = context(n, [4] * BATCH, **changes)
    plan = policy.plan(of)
    k = int(plan.verify.max(initial=0))
    depth = int(plan.draft_depth)
    outcome = msgspec.structs.replace(
        step(BATCH, k, depth, 0.01 + 1e-4 * k + 5e-4 * depth),
        step=n,
        verified=plan.verify,
        accepted=plan.verify,
        emitted=plan.verify + 1,
        batch_tokens=BATCH + int(plan.verify.sum()),
    )
    finished = finished_step(of, plan, outcome)
    policy.observe(finished)
    return finished


def trained(steps: int = 60, **changes: Any) -> GoodputPolicy:
    policy = GoodputPolicy(GoodputOptions())
    for n in range(steps):
        run_step(policy, n, **changes)
    return policy


@pytest.mark.parametrize(("error", "doubted"), [(0.5, 1), (0.1, 0)])
def test_a_probe_whose_step_times_were_wrong_makes_them_doubtful(
    error: float, doubted: int
) -> None:
    policy = trained()
    policy._probe_error = error
    before = policy._cost.changes
    policy.plan(context(100, [4] * BATCH))
    assert policy._cost.changes == before + doubted


def test_a_step_of_prompts_drafts_as_deep_as_the_last_that_decoded() -> None:
    policy = trained()
    last = policy.plan(context(100, [4] * BATCH))
    assert last.draft_depth > 0
    policy._last_depth = 2
    assert policy.plan(context(101, [])).draft_depth == 2
    assert GoodputPolicy(GoodputOptions()).plan(context(1, [])).draft_depth == 4


@pytest.mark.parametrize(("allowance", "heeded"), [(0.02, True), (0.0, False)])
def test_without_an_allowance_targets_are_ignored(allowance: float, heeded: bool) -> None:
    policy = GoodputPolicy(GoodputOptions(tpot_allowance=allowance))
    hopeless = np.full(BATCH, 1e-6)
    plans = [run_step(policy, n, now=0.01 * n, tpot_target=hopeless).plan for n in range(60)]
    assert any(OUT_OF_REACH in plan.reason for plan in plans) is heeded


def test_the_surplus_is_that_of_the_requests_that_take_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = Capability(level=Level.FULL, max_draft_tokens=4, off_pass=False)
    found: list[float] = []
    for opted_out in (None, np.array([True, True, False, False])):
        policy = trained(capability=copies)
        monkeypatch.setattr(policy._modes, "emitted", found.append)
        plan = SpecPlan(
            step=99,
            verify=np.array([0, 0, 2, 2]),
            draft_depth=2,
            mode=Mode.ON,
            reason="planned",
            predicted_tokens=6.0,
            predicted_seconds=0.01,
        )
        outcome = msgspec.structs.replace(
            step(BATCH, 0, 2, 0.01),
            step=99,
            verified=plan.verify,
            accepted=plan.verify,
            emitted=np.array([1, 1, 3, 3]),
        )
        of = context(99, [4] * BATCH, capability=copies, opted_out=opted_out)
        policy.observe(finished_step(of, plan, outcome))
    # Two tokens per step more than predicted: half of one for each of four, and one for two.
    assert found == pytest.approx([0.5, 1.0])


def test_copied_drafts_teach_nothing_about_the_drafter() -> None:
    policy = trained()
    history = policy.acceptance.model.history
    before = history.position_effect.copy()
    plan = policy.plan(context(99, [4] * BATCH))
    verify = np.full(BATCH, 3)
    for from_lookup, moved in ((np.ones(BATCH, dtype=bool), False), (None, True)):
        made = msgspec.structs.replace(plan, verify=verify, from_lookup=from_lookup)
        outcome = msgspec.structs.replace(
            step(BATCH, 3, 3, 0.012), step=99, accepted=np.zeros(BATCH, dtype=np.int64)
        )
        policy.observe(finished_step(context(99, [4] * BATCH), made, outcome))
        assert (history.position_effect < before).any() == moved


@pytest.mark.parametrize(
    ("batch", "hazard", "expected"), [(1, 0.7, 4), (32, 0.7, 4), (48, 0.7, 2), (120, 0.7, 1)]
)
def test_the_first_steps_draft_as_deep_as_a_roofline_lets_pay(
    batch: int, hazard: float, expected: int
) -> None:
    """160 tokens take as long as one; of 120 requests four drafts each would take 3.8 times."""
    survival = np.repeat(hazard ** np.arange(1.0, 5.0)[:, None], batch, axis=1)
    assert first_k(context(1, [4] * batch), survival) == expected
    policy = GoodputPolicy(GoodputOptions())
    plan = policy.plan(context(1, [4] * batch))
    assert plan.draft_depth == plan.verify.max() <= 4
    assert plan.draft_depth == expected


def test_a_fixed_depth_is_left_as_it_is_in_the_first_steps() -> None:
    fixed = msgspec.structs.replace(FULL, level=Level.VERIFY)
    plan = GoodputPolicy(GoodputOptions()).plan(context(1, [4] * 120, capability=fixed))
    assert plan.draft_depth == 4
    assert set(plan.verify.tolist()) == {1}


def test_a_step_that_drafts_for_a_trial_verifies_what_was_planned() -> None:
    policy = trained()
    policy._exploring.trials.best_trial = lambda *_: 1  # type: ignore[method-assign]
    drafting = policy.plan(context(100, [4] * BATCH))
    assert drafting.reason == "drafting 1 to measure it"
    assert drafting.kind is Kind.MEASURING
    assert drafting.draft_depth == 1
    assert drafting.verify.tolist() == [4] * BATCH
    policy._exploring.trials.best_trial = lambda *_: None  # type: ignore[method-assign]
    measuring = policy.plan(context(101, [1] * BATCH))
    assert measuring.reason == "measuring K = 1"
    assert measuring.kind is Kind.MEASURING
    assert measuring.verify.tolist() == [1] * BATCH
