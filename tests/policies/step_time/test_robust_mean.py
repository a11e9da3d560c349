"""A cell of alike steps is moved by what they have in common, not by one of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.policies.step_time.robust_mean import StepCell

ONE = np.ones(1)
SAME = np.zeros(1)


def cell(*seconds: float) -> StepCell:
    made = StepCell(ONE, seconds[0])
    for each in seconds[1:]:
        made.add(SAME, each, 0.0)
    return made


@given(st.lists(st.floats(0.01, 0.02), min_size=1, max_size=40))
def test_it_stays_within_what_it_has_seen(seconds: list[float]) -> None:
    made = cell(*seconds)
    assert min(seconds) * 0.999 <= made.seconds <= max(seconds) * 1.001
    assert made.count == len(seconds)


def test_a_hiccup_among_the_first_is_left_out() -> None:
    assert cell(0.01, 0.3, 0.01).seconds == 0.01


def test_a_hiccup_later_hardly_moves_it() -> None:
    made = cell(*[0.01, 0.0101] * 20)
    made.add(SAME, 1.0, 0.0)
    assert made.seconds == pytest.approx(0.01, rel=0.05)


def test_what_lasts_moves_it() -> None:
    assert cell(*[0.01] * 40, *[0.02] * 60).seconds == pytest.approx(0.02, rel=0.05)


def test_the_mean_follows_the_features_of_its_steps() -> None:
    made = StepCell(np.array([4.0]), 0.4)
    for tokens in np.linspace(4.0, 8.0, 200):
        off = tokens - made.features
        made.add(off, 0.1 * tokens, 0.1 * float(off[0]))
    assert made.seconds == pytest.approx(0.1 * float(made.features[0]))
    assert made.moved == pytest.approx(0.0, abs=1e-9)
