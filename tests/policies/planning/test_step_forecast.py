"""The price that a step's forecast has for each draft; those who opted out have no vote in it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec import Capability, Level
from adaptive_spec.policies.planning.planner import Admission
from adaptive_spec.policies.planning.step_forecast import (
    StepForecast,
    forecast_step,
    verify_price,
)
from adaptive_spec.step import IntArray, Mode, StepContext
from tests import steps
from tests.policies.optional.test_tpot_targets import costs

KMAX = 6

FULL = Capability(level=Level.FULL, max_draft_tokens=4, cold_off=True)


def context(step: int, available: list[int], **changes: Any) -> StepContext:
    fields = dict(capability=FULL, context_tokens=50, draft_available=available, now=0.1 * step)
    return steps.context(len(available), step=step, **(fields | changes))


def forecast(of: StepContext, hazard: float = 0.5, slope: float = 0.001) -> StepForecast:
    batch = of.batch_size
    survival = np.repeat(hazard ** np.arange(1.0, 5.0)[:, None], batch, axis=1)
    nothing = Admission(np.zeros(batch, dtype=np.int64), 0, float(batch), 0.1)
    times = 0.1 + slope * np.arange(4 * batch + 1), 0.002 * np.arange(5)
    return StepForecast(of, survival, None, *times, 0.0, nothing, float(batch))


@pytest.mark.parametrize("batch", [1, 2, 3, 16])
def test_a_draft_has_its_price_where_history_alone_would_verify_none(batch: int) -> None:
    of = forecast(context(1, [4] * batch))
    assert not of.best.verify.any()
    assert verify_price(of) == pytest.approx(of.best.goodput * 0.001)


def test_that_the_first_draft_of_a_step_is_dear_is_no_reason_against_the_others() -> None:
    of = forecast(context(1, [4] * 4))
    dear = of.verify_seconds + 0.05 * (np.arange(17) > 0)
    assert verify_price(of._replace(verify_seconds=dear)) == pytest.approx(verify_price(of))


@pytest.mark.parametrize(("steers", "passes"), [(True, 1), (False, 4)])
def test_a_probe_while_off_takes_all_passes_of_a_drafter_of_fixed_depth(
    steers: bool, passes: int
) -> None:
    level = Level.FULL if steers else Level.VERIFY
    capability = Capability(level=level, max_draft_tokens=4, cold_off=True)
    assert capability.steers_depth is steers
    of = forecast(context(1, [1] * 8, capability=capability))
    without = of.seconds_of(8, 0, Mode.OFF_COLD)
    assert of.seconds_of(8, 1, Mode.OFF_WARM) == pytest.approx(without + 0.002 * passes)
    nothing = of.seconds_of(8, 0, Mode.OFF_WARM) - without
    assert nothing == pytest.approx(float(of.draft_seconds[0]))


def test_other_work_that_a_step_costs_favours_more_drafts_for_it() -> None:
    survival = np.cumprod(np.full((4, 2), 0.6), axis=0)
    verify_seconds, drafting = 0.010 + 0.002 * np.arange(9), np.zeros(5)
    alone, beside = (
        forecast_step(
            context(0, [4, 4], shared_seconds=other), survival, verify_seconds + other, drafting
        )
        for other in (0.0, 0.020)
    )
    assert beside.best.verify.sum() > alone.best.verify.sum()
    for forecast in (alone, beside):
        verify, depth = forecast.best.verify, forecast.best.draft_depth
        plan = forecast.predicted_plan(verify, depth, Mode.ON, "")
        assert plan.predicted_seconds == pytest.approx(0.010 + 0.002 * verify.sum())
        other = forecast.context.shared_seconds
        assert plan.predicted_seconds + other == pytest.approx(forecast.best.seconds)


# --------------------------------------------------------- requests that opted out


def planned(
    context: StepContext,
    survival: np.ndarray,
    times: tuple[np.ndarray, np.ndarray],
    rows: IntArray | None = None,
) -> StepForecast:
    """The forecast of these rows alone, with the step times of the whole batch."""
    if rows is None:
        return forecast_step(context, survival, *times)
    arrays = {
        name: getattr(context, name)[rows]
        for name in ("slots", "draft_available", "draft_possible", "context_tokens", "tpot_target")
    }
    ids = [context.request_ids[row] for row in rows]
    alone = msgspec.structs.replace(context, request_ids=ids, opted_out=None, **arrays)
    verify, drafting = times
    return forecast_step(
        alone, np.ascontiguousarray(survival[:, rows]), verify[: len(rows) * KMAX + 1], drafting
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(2, 24),
    level=st.sampled_from(list(Level)),
    ladder=st.sampled_from([(0, 2, 6), (0, 1, 2, 3, 4, 5, 6)]),
)
def test_others_are_planned_for_as_if_opted_out_requests_were_absent(
    seed: int, batch: int, level: Level, ladder: tuple[int, ...]
) -> None:
    random = np.random.default_rng(seed)
    opted_out = random.random(batch) < 0.4
    opted_out[random.integers(batch)] = False
    possible = np.where(opted_out, 0, random.integers(0, KMAX + 1, batch))
    context = steps.context(
        batch,
        Capability(
            level=level,
            max_draft_tokens=KMAX,
            ladder=ladder if level is Level.UNIFORM else (),
            depth_follows=level is not Level.VERIFY,
            cold_off=True,
        ),
        step=1,
        context_tokens=50,
        draft_available=np.minimum(possible, random.integers(0, KMAX + 1)),
        draft_possible=possible,
        opted_out=opted_out,
    )
    survival = np.cumprod(random.uniform(0.01, 0.99, (KMAX, batch)), axis=0)
    times = costs(random, batch, KMAX)
    whole = planned(context, survival, times)
    rows = np.flatnonzero(~opted_out)
    alone = planned(context, survival, times, rows)
    assert whole.best.verify[rows].tolist() == alone.best.verify.tolist()
    assert not whole.best.verify[opted_out].any()
    assert whole.best.draft_depth == alone.best.draft_depth
    assert np.isclose(whole.of_none, alone.of_none)
    assert np.allclose(whole.best_uniform(), alone.best_uniform())
    out = batch - len(rows)
    assert np.isclose(whole.best_tokens, alone.best_tokens + out)
    assert np.isclose(whole.counted(whole.best_tokens) / batch, alone.best_tokens / len(rows))
