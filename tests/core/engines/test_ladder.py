"""Rounding K to what an engine can run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.engines.ladder import round_down, round_up

LADDERS = st.sets(st.integers(0, 9), min_size=1).map(sorted)


@given(st.integers(0, 12), LADDERS)
def test_rounding_down_never_raises_k_unless_the_ladder_has_nothing_smaller(
    k: int, ladder: list[int]
) -> None:
    assert round_down(k, ladder) == max((x for x in ladder if x <= k), default=ladder[0])


@given(st.integers(0, 12), LADDERS)
def test_rounding_up_never_lowers_k_unless_the_ladder_has_nothing_larger(
    k: int, ladder: list[int]
) -> None:
    assert round_up(k, ladder) == min((x for x in ladder if x >= k), default=ladder[-1])
