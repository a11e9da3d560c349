"""Tests of the price that a step's forecast has for each draft."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec import Capability, Level
from adaptive_spec.policies.planning.planner import Admission
from adaptive_spec.policies.planning.step_forecast import (
    StepForecast,
    convex_slopes,
    forecast_step,
    verify_price,
    verify_prices,
)
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import FloatArray, Mode, StepContext
from tests import steps

FULL = Capability(level=Level.FULL, max_draft_tokens=4, cold_off=True)


def context(step: int, available: list[int], **changes: Any) -> StepContext:
    fields = dict(capability=FULL, context_tokens=50, draft_available=available, now=0.1 * step)
    return steps.context(len(available), step=step, **(fields | changes))


def forecast(of: StepContext, hazard: float = 0.5, slope: float = 0.001) -> StepForecast:
    batch = of.batch_size
    survival = np.repeat(hazard ** np.arange(1.0, 5.0)[:, None], batch, axis=1)
    nothing = Admission(np.zeros(batch, dtype=np.int64), 0, float(batch), 0.1)
    times = 0.1 + slope * np.arange(4 * batch + 1), 0.002 * np.arange(5)
    cost = CostModel(of.capability)
    return StepForecast(of, survival, None, *times, 0.0, nothing, float(batch), cost)


@pytest.mark.parametrize("batch", [1, 2, 3, 16])
def test_a_draft_has_its_price_where_history_alone_would_verify_none(batch: int) -> None:
    of = forecast(context(1, [4] * batch))
    assert not of.best.verify.any()
    assert verify_price(of) == pytest.approx(of.best.goodput * 0.001)
    assert verify_prices(of) == pytest.approx(np.full(4, of.best.goodput * 0.001))


@pytest.mark.parametrize(
    ("milliseconds", "prices"),
    [
        # A kernel that is slow for five tokens: the fourth draft has its price.
        ([100.0, 103.0, 104.0, 105.0, 115.0], [1.0, 1.0, 1.0, 10.0]),
        # Captured for 1, 2 and 5 tokens: who verifies two may as well verify four.
        ([100.0, 103.0, 109.0, 109.0, 109.0], [2.0, 2.0, 2.0, 2.0]),
        # Faster for three tokens than for two.
        ([100.0, 103.0, 101.0, 104.0, 108.0], [-2.0, -2.0, 3.0, 4.0]),
    ],
)
def test_each_draft_of_a_single_request_has_its_own_price(
    milliseconds: list[float], prices: list[float]
) -> None:
    of = forecast(context(1, [4]))._replace(verify_seconds=np.array(milliseconds) / 1e3)
    assert verify_prices(of) == pytest.approx(of.best.goodput * np.array(prices) / 1e3)
    several = forecast(context(1, [4, 4]))
    assert len(set(verify_prices(several).tolist())) == 1


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12))
def test_convex_slopes_are_those_of_the_greatest_convex_curve_below(steps: list[float]) -> None:
    curve = np.cumsum(steps)
    slopes = convex_slopes(curve)
    below = curve[0] + np.append(0.0, np.cumsum(slopes))
    assert (np.diff(slopes) >= -1e-12).all()
    assert (below <= curve + 1e-9).all()
    assert below[-1] == pytest.approx(curve[-1])
    for place in np.flatnonzero(np.diff(slopes) > 1e-9) + 1:
        assert below[place] == pytest.approx(curve[place]), "corners lie on the curve"


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


class Timed(CostModel):
    """A step of 10 ms, and 2 ms for each draft that is verified."""

    def verify_seconds(
        self, batch_size: int, context_tokens: int, prefill_tokens: int
    ) -> FloatArray:
        seconds: FloatArray = 0.010 + 0.002 * np.arange(4 * batch_size + 1)
        return seconds

    def draft_seconds(self, batch_size: int) -> FloatArray:
        return np.zeros(5)


def test_other_work_that_a_step_costs_favours_more_drafts_for_it() -> None:
    survival = np.cumprod(np.full((4, 2), 0.6), axis=0)
    alone = forecast_step(context(0, [4, 4]), survival, Timed(FULL))
    beside = forecast_step(context(0, [4, 4], shared_seconds=0.020), survival, Timed(FULL))
    assert beside.best.verify.sum() > alone.best.verify.sum()
    for forecast in (alone, beside):
        verify, depth = forecast.best.verify, forecast.best.draft_depth
        plan = forecast.predicted_plan(verify, depth, Mode.ON, "")
        assert plan.predicted_seconds == pytest.approx(0.010 + 0.002 * verify.sum())
        assert forecast.compared_seconds(plan) == pytest.approx(forecast.best.seconds)
