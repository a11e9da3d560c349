"""The rules in hindsight: they stop and trim by what the drafter shows, and history is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.step import DraftPass
from benchmarks.confidence_bound import _GRID, KMAX, KnowsProbabilities, _worth_of_going_on, table
from tests.policies.planning.test_plans import context


def test_it_verifies_the_drafts_whose_survival_reaches_the_price() -> None:
    shown = np.array([[0.9, 0.9, 0.9, 0.9], [0.9, 0.5, 0.9, 0.9], [0.4, 1.0, 1.0, np.nan]])
    now = context(0, [4, 1, 3], confidence=shown)
    plan = KnowsProbabilities(4, 0.45).plan(now)
    assert plan.verify.tolist() == [4, 1, 0]
    assert KnowsProbabilities(4, 0.7).plan(now).verify.tolist() == [3, 1, 0]


def test_drafting_goes_on_where_it_is_worth_something() -> None:
    going_on = [np.where(_GRID > 0.5, 1.0, 0.0)] * (KMAX + 1)
    rule = KnowsProbabilities(KMAX, going_on=going_on)
    draft = DraftPass(
        step=0,
        position=1,
        slots=np.arange(3),
        drafting=np.array([True, True, False]),
        confidence=np.array([[0.9, 0.8], [0.9, 0.4], [0.9, 0.9]]),
        entropy=np.zeros((3, 2)),
    )
    verdict = rule.after_draft_pass(draft)
    assert verdict.admitted.tolist() == [True, True, False]
    assert verdict.drafting.tolist() == [True, False, False]


def test_going_on_is_worth_more_the_likelier_it_is_reached_and_less_the_dearer_time_is() -> None:
    shown = [np.array([0.3, 0.6, 0.9])] * KMAX
    cheap, dear = (_worth_of_going_on(shown, rate) for rate in (150.0, 400.0))
    for low, high in zip(dear, cheap, strict=True):
        assert (np.diff(high) >= 0).all()
        assert (high >= low).all()
    assert cheap[0][-1] > dear[0][-1]
    assert (cheap[KMAX] == 0).all()


def test_the_table_has_means_next_to_the_demands() -> None:
    found = {("one", 64): [(1.02, 1.01), (1.04, 1.03)], ("two", 64): [(1.0, 1.0), (1.0, 1.0)]}
    last = table(found).splitlines()[-1].split()
    assert last == ["mean", "64", "1.015", "1.010", "1.02"]
    assert pytest.approx(1.03) == float(table(found).splitlines()[1].split()[2])
