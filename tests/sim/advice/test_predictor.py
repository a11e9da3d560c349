"""Outcomes at several loads as one speed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adaptive_spec.sim.advice.predictor import Runs, student_t
from adaptive_spec.sim.advice.setups import static
from adaptive_spec.sim.advice.worlds import Outcome


class TwoSpeeds:
    """A world with a speed of its own at each load."""

    def run(self, set_up: Any, clients: int) -> Outcome:
        speed = {1: 100.0, 64: 1000.0}[clients]
        return Outcome(speed, np.zeros(1), 1.0)


def test_what_there_is_to_emit_is_given_not_the_time_at_a_load() -> None:
    world: Any = TwoSpeeds()
    runs = Runs({"recorded": world})
    set_up = static(2)
    runs.run_missing(("recorded", set_up, clients) for clients in (1, 64))
    # 1,000 tokens take 10 s at 1 client, 3,000 take 3 s at 64.
    found = runs.speed("recorded", set_up.name, (1, 64), (1000.0, 3000.0))
    assert found == pytest.approx(4000.0 / 13.0)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(9, 2.262), (19, 2.093), (49, 2.010), (1000, 1.962)]
)
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert student_t(0.95, degrees) == pytest.approx(quantile, rel=2e-3)
