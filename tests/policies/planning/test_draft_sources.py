"""Which requests verify looked-up drafts, and what is drafted for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec import Capability, Level
from adaptive_spec.policies.acceptance.lookup_model import LookupModel
from adaptive_spec.policies.planning.draft_sources import DraftSources
from adaptive_spec.policies.planning.step_forecast import StepForecast, verify_price
from adaptive_spec.step import FloatArray, IntArray, StepContext
from tests.policies.planning.test_plans import context

KMAX = 4


class Known(LookupModel):
    """Hazards that are given."""

    def __init__(self, hazard: FloatArray) -> None:
        super().__init__(KMAX)
        self._given = hazard

    def hazard(self, slots: IntArray, match: IntArray) -> FloatArray:
        return self._given


def step(available: list[int], copied: list[int], **changes: object) -> StepContext:
    return context(
        0,
        available,
        lookup_available=np.array(copied, dtype=np.int64),
        lookup_match=np.array(copied, dtype=np.int64) + 1,
        **changes,
    )


def constant(*hazards: float) -> FloatArray:
    return np.repeat(np.array([hazards]), KMAX, axis=0)


def test_each_request_takes_the_source_whose_drafts_are_worth_more() -> None:
    at_hand = step([4, 4, 4, 0], [4, 4, 0, 1])
    chosen = DraftSources().choose(
        at_hand, constant(0.7, 0.7, 0.7, 0.9), Known(constant(0.9, 0.5, 0.9, 0.6))
    )
    assert chosen.from_lookup.tolist() == [True, False, False, True]
    assert chosen.context.draft_available.tolist() == [4, 4, 4, 1]
    assert chosen.hazard[0].tolist() == [0.9, 0.7, 0.7, 0.6]


def test_no_source_is_held_to_a_price_above_what_the_plan_pays() -> None:
    # Slopes over a stretch of a curve with a knee are dearer than the drafts the plan has taken.
    plan = SimpleNamespace(verify=np.array([2, 0]), goodput=0.9)
    forecast = SimpleNamespace(
        context=SimpleNamespace(batch_size=2),
        verify_seconds=np.arange(5.0),
        best=plan,
        survival=np.array([[0.6, 0.3], [0.4, 0.2]]),
    )
    assert verify_price(cast(StepForecast, forecast)) == 0.9
    sources = DraftSources()
    for _ in range(100):
        sources.priced(cast(StepForecast, forecast))
    at_hand = step([4, 4], [1, 1])
    chosen = sources.choose(at_hand, constant(0.45, 0.45), Known(constant(0.6, 0.41)))
    assert chosen.from_lookup.tolist() == [True, False]


def test_who_is_sure_to_go_on_copying_needs_nothing_of_the_drafter() -> None:
    chosen = DraftSources().choose(step([4], [4]), constant(0.7), Known(constant(1.0)))
    assert not chosen.ahead.survival.any()
    assert chosen.ahead.more.tolist() == [4.0]


def test_nothing_is_chosen_where_one_k_holds_for_all_or_nothing_was_found() -> None:
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=KMAX)
    sure = Known(constant(1.0, 1.0))
    for at_hand in (
        step([4, 4], [4, 4], capability=uniform),
        step([4, 4], [0, 0]),
        context(0, [4, 4]),
    ):
        chosen = DraftSources().choose(at_hand, constant(0.5, 0.5), sure)
        assert chosen.from_lookup is None
        assert chosen.ahead is None
        assert chosen.context is at_hand


@given(
    st.lists(
        st.tuples(
            st.integers(0, KMAX), st.integers(0, KMAX), st.floats(0.01, 0.99), st.floats(0.01, 0.99)
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_plan_never_asks_for_more_than_the_chosen_source_has(
    rows: list[tuple[int, int, float, float]],
) -> None:
    available, copied, by_drafter, by_lookup = map(list, zip(*rows, strict=True))
    chosen = DraftSources().choose(
        step(available, copied), constant(*by_drafter), Known(constant(*by_lookup))
    )
    taken = np.zeros(len(rows), dtype=bool) if chosen.from_lookup is None else chosen.from_lookup
    limit = np.where(taken, copied, available)
    assert (chosen.context.draft_available == limit).all()
    assert not (taken & (np.array(copied) == 0)).any()
    if chosen.ahead is not None:
        survival = np.cumprod(constant(*by_drafter), axis=0)
        assert (chosen.ahead.survival <= survival + 1e-12).all()
