"""Two sources of drafts: which choices between them keep the joint law, by enumeration.

A request verifies the drafter's sampled drafts against q, or looked-up ones as what they are, a
distribution with all its weight on one token. Emitted text decides what is looked up.
"""

from collections.abc import Callable

import pytest

from adaptive_spec.policy import Policy
from adaptive_spec.step import BoolArray, FloatArray, StepContext
from tests.losslessness.exact import rules
from tests.losslessness.exact.joint_law import Found, enumerate_batch
from tests.losslessness.exact.request import Rules
from tests.losslessness.exact.rules import Rule, TwoSources, WhoWasRight
from tests.losslessness.exact.shipped import engines, experienced, shipped
from tests.losslessness.test_contract_table import bias, figure, found_for, marginal_bias

EXACT = 1e-12
LOOKED_UP = Rules(copies="one-hot")
LEARNING_ROUNDS, ROUNDS, MOST_ROUNDS = 40, 8, 60
"""After more rounds of learning, `goodput` copies alone."""


def by_the_text(context: StepContext) -> BoolArray:
    assert context.lookup_match is not None
    return context.lookup_match > 5


def confidence_of(context: StepContext) -> FloatArray:
    assert context.confidence is not None
    return context.confidence


def where_first_is_unsure(context: StepContext) -> BoolArray:
    """By the drafter's first position: its maximum says nothing of what was drawn, q(x) does."""
    return confidence_of(context)[:, 0] < 0.62


def where_second_is_unsure(context: StepContext) -> BoolArray:
    return confidence_of(context)[:, 1] < 0.62


def the_other_is_unsure(context: StepContext) -> BoolArray:
    return confidence_of(context)[::-1, 1] < 0.7


def two_rounds(policy: Callable[[], Policy]) -> list[Found]:
    return found_for(policy, LOOKED_UP, rounds=2, models=2)


@pytest.mark.parametrize("rule", [rules.all_of_it, rules.trim, rules.stale_multiplier])
def test_a_source_chosen_by_emitted_text_is_exact_under_any_trim(rule: Rule) -> None:
    results = two_rounds(lambda: TwoSources(by_the_text, rule))
    assert bias(results) < EXACT
    assert {each.sources for each in results} == {2}


def test_a_source_chosen_by_what_earlier_rounds_have_shown_is_exact() -> None:
    results = two_rounds(WhoWasRight)
    assert bias(results) < EXACT
    assert {each.sources for each in results} == {2}


def test_a_source_may_follow_a_distribution_and_not_its_drawn_token() -> None:
    def policy() -> Policy:
        return TwoSources(where_first_is_unsure)

    assert bias(found_for(policy, LOOKED_UP)) < EXACT
    by_token = found_for(policy, LOOKED_UP, shown="token")
    assert marginal_bias(by_token) == figure("source of drafts by q of the drafted token")


def test_a_source_chosen_by_a_deeper_position_is_biased() -> None:
    results = found_for(lambda: TwoSources(where_second_is_unsure), LOOKED_UP)
    assert marginal_bias(results) == figure("source of drafts by a deeper position")


def test_a_source_chosen_by_the_others_deeper_position_is_biased_jointly() -> None:
    results = found_for(lambda: TwoSources(the_other_is_unsure), LOOKED_UP)
    assert marginal_bias(results) < EXACT
    assert bias(results) > 0.05


def test_looked_up_drafts_are_not_judged_as_drawn_ones() -> None:
    results = found_for(lambda: TwoSources(by_the_text), Rules(copies="judged by q"))
    assert marginal_bias(results) == figure("looked-up drafts verified as if drawn from q")


@pytest.mark.parametrize("engine", ["K per request", "K and depth free"])
def test_goodput_keeps_the_joint_law_with_two_sources(engine: str) -> None:
    text = experienced(shipped("goodput"), engines(3)[engine], LEARNING_ROUNDS, copies="one-hot")
    sources = 0
    for number in range(MOST_ROUNDS):
        if number >= ROUNDS and sources > 1:
            break
        found = enumerate_batch(text.server, text.requests)
        assert found.bias < EXACT
        sources = max(sources, found.sources)
        text.run(1)
    assert sources > 1
