"""Late requests get the drafts that their target needs, and nobody else pays more than agreed."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.policies.optional.tpot_targets import OUT_OF_REACH, RAISED, TpotTargets
from adaptive_spec.policies.planning.step_forecast import StepForecast, forecast_step
from adaptive_spec.step import Capability, FloatArray, Level, Mode, SpecPlan
from tests import steps


def costs(random: np.random.Generator, batch: int, kmax: int) -> tuple[FloatArray, FloatArray]:
    """Verify and draft times of a made-up engine, [B * Kmax + 1] and [Kmax + 1] seconds."""
    steps = random.exponential(random.uniform(1e-5, 2e-3), batch * kmax + 1)
    verify = random.uniform(0.001, 0.03) + np.cumsum(steps)
    return verify, random.uniform(1e-5, 2e-3) * np.arange(kmax + 1)


def planned(
    seed: int, batch: int, level: Level, ladder: tuple[int, ...], penalty: float
) -> tuple[StepForecast, SpecPlan, np.random.Generator]:
    """A forecast of a random step, and its plan without targets."""
    random = np.random.default_rng(seed)
    kmax = 6
    capability = Capability(
        level=level,
        max_draft_tokens=kmax,
        ladder=ladder if level is Level.UNIFORM else (),
        depth_follows=level is not Level.VERIFY,
        ragged_penalty=penalty if level is Level.FULL else 0.0,
    )
    possible = random.integers(0, kmax + 1, batch)
    step = steps.context(
        batch,
        capability,
        step=1,
        context_tokens=50,
        draft_available=np.minimum(possible, random.integers(0, kmax + 1)),
        draft_possible=possible,
        engine_k=ladder[-1],
    )
    survival = np.cumprod(random.uniform(0.01, 0.99, (kmax, batch)), axis=0)
    forecast = forecast_step(step, survival, *costs(random, batch, kmax))
    best = forecast.best
    return (
        forecast,
        forecast.predicted_plan(best.verify, best.draft_depth, Mode.ON, "planned"),
        random,
    )


def seconds_of(forecast: StepForecast, plan: SpecPlan) -> float:
    ragged = bool(np.ptp(plan.verify))
    return forecast.seconds_of(int(plan.verify.sum()), plan.draft_depth, ragged=ragged)


STEPS = {
    "seed": st.integers(0, 2**32 - 1),
    "batch": st.integers(1, 24),
    "level": st.sampled_from(list(Level)),
    "ladder": st.sampled_from([(0, 2, 6), (0, 1, 2, 3, 4, 5, 6), (1, 3, 6)]),
    "penalty": st.sampled_from([0.0, 0.05]),
}


@given(**STEPS, allowance=st.sampled_from([0.005, 0.02, 0.3]))
def test_no_request_loses_more_than_the_allowance_by_others_targets(
    seed: int,
    batch: int,
    level: Level,
    ladder: tuple[int, ...],
    penalty: float,
    allowance: float,
) -> None:
    forecast, plan, random = planned(seed, batch, level, ladder, penalty)
    low, high = random.choice([(-12.0, 1.0), (-3.5, -1.5)])
    targets = 10.0 ** random.uniform(low, high, batch)
    targets = np.where(random.random(batch) < 0.5, np.inf, targets)
    asked = msgspec.structs.replace(forecast.context, tpot_target=targets)
    late = np.isfinite(targets)
    raised = TpotTargets(allowance).raised(plan, forecast._replace(context=asked), late)
    assert not plan_fault(raised, asked)
    assert (raised.verify >= plan.verify).all()
    assert raised.draft_depth >= plan.draft_depth
    deeper = raised.draft_depth > plan.draft_depth
    assert (RAISED in raised.reason) == bool(deeper or (raised.verify > plan.verify).any())
    before, after = seconds_of(forecast, plan), seconds_of(forecast, raised)
    assert after <= (1.0 + allowance) * before * (1.0 + 1e-12)


@given(**STEPS)
def test_one_late_request_gets_the_fewest_drafts_that_reach_its_target(
    seed: int, batch: int, level: Level, ladder: tuple[int, ...], penalty: float
) -> None:
    forecast, plan, random = planned(seed, batch, level, ladder, penalty)
    row, allowance = int(random.integers(batch)), 0.3
    target = 10.0 ** random.uniform(-3.5, -1.5)
    targets = np.full(batch, np.inf)
    targets[row] = target
    asked = msgspec.structs.replace(forecast.context, tpot_target=targets)
    raised = TpotTargets(allowance).raised(
        plan, forecast._replace(context=asked), np.isfinite(targets)
    )
    tokens = 1.0 + np.concatenate(([0.0], np.cumsum(forecast.survival[:, row])))
    if seconds_of(forecast, plan) <= target * tokens[plan.verify[row]]:
        assert raised is plan
        return
    fewest = None
    for k in asked.capability.uniform_values:
        if level is Level.UNIFORM:
            verify = np.minimum(asked.draft_possible, k)
        else:
            verify = plan.verify.copy()
            verify[row] = k
        depth = max(plan.draft_depth, k)
        seconds = forecast.seconds_of(int(verify.sum()), depth, ragged=bool(np.ptp(verify)))
        limit = (1.0 + allowance) * seconds_of(forecast, plan)
        more = k > (plan.verify.max() if level is Level.UNIFORM else plan.verify[row])
        possible = level is Level.UNIFORM or k <= asked.draft_possible[row]
        if more and possible and seconds <= min(limit, target * tokens[verify[row]]):
            fewest = k
            break
    if penalty and level is not Level.UNIFORM and batch > 1:
        return  # the search charges every batch as a ragged one: fewer targets are reached
    assert (OUT_OF_REACH in raised.reason) == (fewest is None)
    if fewest is not None and level is not Level.VERIFY:
        assert raised.draft_depth == max(plan.draft_depth, fewest)


def test_only_requests_behind_their_target_are_late() -> None:
    targets = TpotTargets(0.02)
    start = steps.context(3, now=10.0, tpot_target=np.array([0.1, 0.01, np.inf]))
    assert targets.late(start) is None
    targets.emitted(start.slots, np.array([20, 20, 20]))
    later = msgspec.structs.replace(start, now=11.0)  # 50 ms a token
    late = targets.late(later)
    assert late.tolist() == [False, True, False]
    targets.forget(np.array([1]))
    assert targets.late(later) is None


def test_drafts_that_are_at_hand_and_dearer_than_those_wanted_are_left_out() -> None:
    """A late request wants three drafts at no cost; two are at hand, and two take twice as long."""
    of = steps.context(1, 4, draft_available=2, tpot_target=np.array([0.004]))
    survival = np.full((4, 1), 0.9)
    stairs = np.array([0.0100, 0.0300, 0.0200, 0.0101, 0.0400])
    forecast = forecast_step(of, survival, stairs, np.zeros(5))
    none = forecast.predicted_plan(np.zeros(1, dtype=np.int64), 0, Mode.ON, "planned")
    raised = TpotTargets(0.05).raised(none, forecast, np.array([True]))
    assert raised.verify.tolist() == [0]
    assert raised.draft_depth == 3
