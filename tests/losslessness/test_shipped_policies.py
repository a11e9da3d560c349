"""Every installed policy leaves the joint law of the batch's output as it is, by enumeration.

Each has learned something first: what is checked is the policy at work, through the `Controller`.
"""

import pytest

from tests.losslessness.exact.joint_law import enumerate_batch
from tests.losslessness.exact.shipped import (
    FOR_SAMPLED_DRAFTS,
    GREEDY_ONLY,
    LIVE,
    engines,
    experienced,
    shipped,
)

EXACT = 1e-12
LEARNING_ROUNDS = 80
ROUNDS, MOST_ROUNDS = 3, 60
"""Enumerated one by one, with a round drawn at random after each; more until K follows the signal
where it should: the check would be empty otherwise."""
DRAFTS_ALL = {("regression", "K and depth free")}
"""Here they make and verify all drafts; the draws of a big batch have `regression` at work."""


@pytest.mark.parametrize("engine", engines(3))
@pytest.mark.parametrize("name", FOR_SAMPLED_DRAFTS)
def test_one_round_is_exact(name: str, engine: str) -> None:
    follows = name in LIVE and engine != "one K for all" and (name, engine) not in DRAFTS_ALL
    check_rounds(name, engine, seed=1, rounds=ROUNDS, follows=follows)


def check_rounds(name: str, engine: str, *, seed: int, rounds: int, follows: bool) -> None:
    capability = engines(3)[engine]
    text = experienced(shipped(name, seed), capability, LEARNING_ROUNDS)
    most = 0
    for number in range(MOST_ROUNDS):
        if number >= rounds and (most > 1 or not follows):
            break
        found = enumerate_batch(text.server, text.requests)
        assert found.bias < EXACT
        most = max(most, found.plans)
        text.run(1)
    assert most > 1 or not follows


def test_rounds_in_which_confidence_is_still_being_learned_are_exact() -> None:
    """Its mean and variance moved by the drafts at hand once, before they were verified."""
    check_rounds("goodput2", "K per request", seed=3, rounds=40, follows=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("engine", engines(3))
@pytest.mark.parametrize("name", FOR_SAMPLED_DRAFTS)
def test_many_rounds_are_exact(name: str, engine: str, seed: int) -> None:
    check_rounds(name, engine, seed=seed, rounds=40, follows=False)


@pytest.mark.parametrize("name", FOR_SAMPLED_DRAFTS)
def test_two_rounds_of_two_drafts_are_exact_with_k_and_depth_free(name: str) -> None:
    text = experienced(shipped(name), engines(2)["K and depth free"], LEARNING_ROUNDS)
    assert enumerate_batch(text.server, text.requests, rounds=2).bias < EXACT


@pytest.mark.parametrize("name", sorted({*LIVE, *GREEDY_ONLY}))
def test_two_rounds_are_exact_with_confidences_of_the_round_before(name: str) -> None:
    capability = engines(2)["K per request"]
    text = experienced(shipped(name), capability, LEARNING_ROUNDS, signal="late")
    assert enumerate_batch(text.server, text.requests, rounds=2).bias < EXACT


@pytest.mark.parametrize("name", GREEDY_ONLY)
def test_a_policy_for_greedy_drafts_is_biased_with_sampled_ones(name: str) -> None:
    # What its rule is written for: the probability of the drafted token.
    capability = engines(2)["K per request"]
    text = experienced(shipped(name), capability, LEARNING_ROUNDS, shown="token")
    assert enumerate_batch(text.server, text.requests, shown="token").bias > 0.01


@pytest.mark.parametrize("name", GREEDY_ONLY)
def test_a_policy_for_greedy_drafts_is_exact_with_them(name: str) -> None:
    capability = engines(2)["K per request"]
    text = experienced(shipped(name), capability, LEARNING_ROUNDS, drafting="greedy")
    assert enumerate_batch(text.server, text.requests, rounds=2).bias < EXACT
