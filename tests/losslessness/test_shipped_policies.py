"""Every installed policy leaves the joint law of the batch's output as it is, by enumeration.

Each has learned something first: what is checked is the policy at work, through the `Controller`.
"""

from typing import Any

import msgspec
import pytest

from adaptive_spec.config import Audit
from tests.losslessness.exact import server
from tests.losslessness.exact.joint_law import enumerate_batch
from tests.losslessness.exact.shipped import (
    LIVE,
    NAMES,
    engines,
    experienced,
    shipped,
)

EXACT = 1e-12
LEARNING_ROUNDS = 80
ROUNDS, MOST_ROUNDS = 3, 60
"""Enumerated one by one, with a round drawn at random after each; more until K follows the signal
where it should: the check would be empty otherwise."""


@pytest.mark.parametrize("engine", engines(3))
@pytest.mark.parametrize("name", NAMES)
def test_one_round_is_exact(name: str, engine: str) -> None:
    follows = name in LIVE and engine != "one K for all"
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
    check_rounds("goodput", "K per request", seed=3, rounds=40, follows=True)


@pytest.mark.parametrize(("arm", "mode"), [("engine", "shadow"), ("none", "off_warm")])
def test_rounds_in_and_beside_audit_blocks_are_exact(
    monkeypatch: pytest.MonkeyPatch, arm: Any, mode: str
) -> None:
    audit = Audit(share=0.25, arms=(arm,), guard=False)
    config = msgspec.structs.replace(server._CONFIG, audit=audit)
    monkeypatch.setattr(server, "_CONFIG", config)
    text = experienced(shipped("goodput", 1), engines(3)["K and depth free"], LEARNING_ROUNDS)
    modes = text.server.controller.counters.modes
    before = modes[mode]
    for _ in range(24):
        assert enumerate_batch(text.server, text.requests).bias < EXACT
        text.run(4)
    ran = text.server.controller.counters.modes[mode] - before
    assert 0 < ran < 96  # rounds in a block, and rounds beside one


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("engine", engines(3))
@pytest.mark.parametrize("name", NAMES)
def test_many_rounds_are_exact(name: str, engine: str, seed: int) -> None:
    check_rounds(name, engine, seed=seed, rounds=40, follows=False)


@pytest.mark.parametrize("name", NAMES)
def test_two_rounds_of_two_drafts_are_exact_with_k_and_depth_free(name: str) -> None:
    text = experienced(shipped(name), engines(2)["K and depth free"], LEARNING_ROUNDS)
    assert enumerate_batch(text.server, text.requests, rounds=2).bias < EXACT


@pytest.mark.parametrize("name", sorted(LIVE))
def test_two_rounds_are_exact_with_confidences_of_the_round_before(name: str) -> None:
    capability = engines(2)["K per request"]
    text = experienced(shipped(name), capability, LEARNING_ROUNDS, signal="late")
    assert enumerate_batch(text.server, text.requests, rounds=2).bias < EXACT
