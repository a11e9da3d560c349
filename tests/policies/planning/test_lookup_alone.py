"""When the drafter's pass is left out because look-ups serve every request."""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec import Mode
from adaptive_spec.policies.planning.draft_sources import LookupAlone
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import FinishedStep, FloatArray, SpecPlan, StepContext
from tests import steps
from tests.policies.planning.test_plans import context
from tests.policies.planning.test_step_forecast import FULL

KMAX = FULL.max_draft_tokens


class Timed(CostModel):
    """A target pass of 10 ms, and 1 ms for each pass of the drafter."""

    def verify_seconds(
        self, batch_size: int, context_tokens: int, prefill_tokens: int
    ) -> FloatArray:
        return np.full(batch_size * KMAX + 1, 0.010)

    def draft_seconds(self, batch_size: int) -> FloatArray:
        seconds: FloatArray = 0.001 * np.maximum(np.arange(KMAX + 1), 1)
        return seconds


def at(requests: int, **changes: object) -> StepContext:
    copied = np.full(requests, KMAX)
    return context(0, [KMAX] * requests, lookup_available=copied, lookup_match=copied, **changes)


def took(copies: list[bool], accepted: int = 2) -> FinishedStep:
    """A step that verified copied drafts, or the drafter's where a copied draft rarely agrees."""
    now, looked_up = at(len(copies)), np.array(copies)
    verified = np.full(len(copies), KMAX)
    right = np.where(looked_up, KMAX, accepted)
    plan = SpecPlan(
        step=0, verify=verified, draft_depth=1, mode=Mode.ON, reason="", from_lookup=looked_up
    )
    outcome = steps.outcome(
        now,
        verified,
        right,
        context_tokens=100,
        draft_depth=1,
        seconds=0.011,
        lookup_agreed=np.where(looked_up, KMAX, 0),
    )
    return FinishedStep(now, plan, outcome)


def predicted(drafts: float, requests: int) -> FloatArray:
    """Survival [Kmax, B] of drafts that are expected to be accepted so often in all."""
    return np.full((KMAX, requests), drafts / KMAX)


def learn(alone: LookupAlone, copies: list[bool], accepted: float, copied: float) -> None:
    survival = predicted(accepted, len(copies))
    survival_copied = np.where(copies, 1.0, predicted(copied, len(copies)))
    alone.learn_times(took(copies), Timed(FULL), survival, survival_copied)


def after(
    steps: int, copies: list[bool], accepted: float = 2.0, copied: float = 0.0
) -> LookupAlone:
    alone = LookupAlone()
    for _ in range(steps):
        learn(alone, copies, accepted, copied)
    return alone


def lost(now: StepContext, *rows: int) -> StepContext:
    possible = now.draft_possible.copy()
    possible[list(rows)] = 0
    return msgspec.structs.replace(now, draft_possible=possible, draft_available=possible)


def test_a_drafter_that_was_tried_is_left_where_every_step_copies() -> None:
    assert not LookupAlone().pays(at(1))
    assert not after(3, [True]).pays(at(1))
    assert after(20, [True]).pays(at(1))


def test_the_drafter_stays_where_it_saves_steps_of_the_target() -> None:
    assert not after(100, [False]).pays(at(1))


def test_the_drafter_is_left_where_copies_are_nearly_as_good() -> None:
    assert after(100, [False], accepted=1.0, copied=0.95).pays(at(1))
    assert not after(100, [False], accepted=1.0, copied=0.5).pays(at(1))


def test_steps_where_copies_were_better_count_for_the_look_up() -> None:
    alone = after(50, [False], accepted=1.0, copied=0.7)
    assert not alone.pays(at(1))
    for _ in range(50):
        learn(alone, [False], 1.0, 0.7)
        learn(alone, [False], 0.7, 1.0)
    assert alone.pays(at(1))


def test_one_request_that_needs_the_drafter_keeps_it_for_all() -> None:
    alone = after(60, [True, False])
    assert not alone.pays(at(2))
    alone.forget(np.array([1]))
    assert not alone.pays(at(2)), "a new request has the drafter first"


def test_a_request_given_up_stays_without_the_drafter_to_its_end() -> None:
    alone = after(20, [True])
    assert alone.pays(at(1))
    for _ in range(40):
        learn(alone, [False], 2.0, 0.0)
    assert alone.pays(lost(at(1), 0))
    assert not alone.pays(at(1)), "the plan was not carried out"
    alone.forget(np.array([0]))
    assert not alone.pays(lost(at(1), 0))


def test_prompts_meet_the_drafter() -> None:
    alone = after(20, [True])
    assert not alone.pays(at(1, prefill_tokens=30))
    assert not alone.pays(at(1, waiting=1))
    assert alone.pays(at(1))


def test_a_drafter_that_cannot_be_left_out_runs() -> None:
    alone = after(20, [True])
    fixed = msgspec.structs.replace(FULL, cold_off=False)
    assert not alone.pays(msgspec.structs.replace(at(1), capability=fixed))


def long(requests: int = 1) -> StepContext:
    """Requests whose last tokens were all found in earlier text."""
    return msgspec.structs.replace(at(requests), lookup_match=np.full(requests, 32))


def requests_of_known_text(count: int, *, copies: bool = True, now: StepContext) -> LookupAlone:
    """Return a `LookupAlone` that has learned from `count` requests of at most 12 steps."""
    alone = LookupAlone()
    for _ in range(count):
        for _ in range(12):
            if alone.pays(now):
                break
            learn(alone, [copies], 2.0, 2.0 if copies else 0.0)
        alone.forget(np.array([0]))
    return alone


def test_known_text_loses_the_drafter_at_once_where_text_before_did_well() -> None:
    alone = requests_of_known_text(6, now=long())
    assert alone.pays(long())


def test_new_text_keeps_the_drafter_for_its_first_steps_beside_known_text() -> None:
    assert not requests_of_known_text(6, now=long()).pays(at(1))


def test_known_text_that_needs_the_drafter_keeps_it() -> None:
    assert not requests_of_known_text(12, copies=False, now=long()).pays(long())


def test_some_requests_of_known_text_try_the_drafter_again() -> None:
    alone, tried = requests_of_known_text(6, now=long()), 0
    for _ in range(32):
        tried += not alone.pays(long())
        alone.forget(np.array([0]))
    assert 2 <= tried <= 8


def requests_of_new_text(accepted: list[float], *, steps: int = 12) -> LookupAlone:
    """Return a `LookupAlone` that has learned from requests whose drafter was right so often.

    Args:
        accepted: drafts of the drafter accepted per step, by request; a copied draft never agrees.
        steps: of each request.
    """
    alone = LookupAlone()
    for each in accepted:
        for _ in range(steps):
            if not alone.pays(at(1)):
                learn(alone, [False], each, 0.0)
        alone.forget(np.array([0]))
    return alone


def test_a_request_need_not_try_what_requests_like_it_have_settled() -> None:
    alone = requests_of_new_text([0.01, 0.02] * 8)
    assert alone.pays(at(1))


def test_a_request_tries_the_drafter_where_requests_differ() -> None:
    assert not requests_of_new_text([0.0, 0.0, 0.0, 0.5] * 4).pays(at(1))
    assert not requests_of_new_text([0.5, 0.6] * 8).pays(at(1))


def test_a_long_request_tries_the_drafter_where_a_short_one_need_not() -> None:
    accepted = [0.0, 0.09] * 8
    assert requests_of_new_text(accepted, steps=20).pays(at(1))
    assert not requests_of_new_text(accepted, steps=400).pays(at(1))


def test_some_requests_try_the_drafter_though_it_is_settled() -> None:
    alone, tried = requests_of_new_text([0.01, 0.02] * 8), 0
    for _ in range(32):
        tried += not alone.pays(at(1))
        alone.forget(np.array([0]))
    assert 2 <= tried <= 6


def test_requests_of_a_crowd_begin_and_end() -> None:
    alone, crowd = LookupAlone(), at(200)
    assert not alone.pays(crowd)
    for _ in range(10):
        learn(alone, [True] * 200, 2.0, 2.0)
    alone.forget(crowd.slots)
    last = msgspec.structs.replace(at(1), slots=crowd.slots[-1:])
    assert alone.pays(last), "200 requests that were alike have settled it"


def test_a_request_that_ends_after_promising_look_ups_does_not_raise() -> None:
    """Of two requests with the drafter's drafts, the look-up promises everything to one alone."""
    alone, cost = LookupAlone(), Timed(FULL)
    promised = np.zeros((KMAX, 2))
    promised[:, 0] = 1.0
    for _ in range(20):
        alone.pays(at(2))
        alone.learn_times(took([False, False], accepted=0), cost, np.zeros((KMAX, 2)), promised)
    assert alone._alone[np.array([0])][0] < 0.0
    alone.forget(np.arange(2))
