"""Losslessness with sampled drafts: two worlds that a policy may not tell apart.

A round verifies K_i drafts of request i. Its output keeps the target's distribution, jointly over
the batch, if the event {K = k} is decided by drafted tokens that are verified in it: every deeper
token then is as good as never drawn, and the target samples in its place, which is the law that
full verification gives (Leviathan et al., arXiv 2211.17192). What the drafter says at position j
follows from the tokens before j, so K may use, of each request, the confidence and entropy at
positions 0..K_i: of the drafts that are verified and of the first one that is not.

The check compares K in a world with K in another one, from the same policy with the same past, in
which everything the drafter says deeper than that is rewritten, for all requests at once. They
must agree. To rewrite for one request at a time would miss rules by which two requests depend on
each other's deeper positions: their marginals are right, their joint law is not.

A round is seen whole, from drafting (with the verdict after each pass) to the plan, so a draft that
was made and then taken back counts as not verified. Allowed are, thus: early exits, thresholds on a
position's own distribution, the ranking of live survival within a stale budget, and a depth for
the *next* round that uses this one.
"""

from __future__ import annotations

import copy

import msgspec
import numpy as np

from adaptive_spec.policy import Policy
from adaptive_spec.step import BoolArray, Capability, FloatArray, IntArray
from adaptive_spec.testing.fake_engine import KMAX, MadeUpEngine, Round, entropy_of

_LEARNING_ROUNDS = 50
"""Before the first comparison: models of acceptance and time have to know something."""
_CONTROL_ROUNDS = 8
"""In which nothing is rewritten: a copy has to plan what the policy plans."""
_COMPARED_ROUNDS = 60
_HIGH, _LOW = 0.98, 0.02


class TwoWorlds(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared.

    Attributes:
        rounds: in which something could be rewritten.
        decided_by_signal: rounds, of those asked, in which K changes if *all* is rewritten; 0 if
            the policy does not use the signal live, and there was nothing to find.
    """

    rounds: int
    decided_by_signal: int


def check_two_worlds(policy: Policy, capability: Capability) -> TwoWorlds:
    """Check that K does not look ahead.

    Args:
        policy: a new one. `copy.deepcopy` must copy all of it: a random generator that a closure
            holds, for one, would be shared by both worlds.
        capability: of the engine.

    Raises AssertionError with one line that names the step and both K.
    """
    random = np.random.default_rng(17)
    engine = MadeUpEngine(capability, signal=True)
    engine.run(policy, _LEARNING_ROUNDS)
    for _ in range(_CONTROL_ROUNDS):
        round_ = engine.next_round()
        before = _copy(policy)
        available = engine.draft(policy, round_)
        engine.settle(policy)
        plan = engine.plan(policy, round_, available)
        _require_copied(plan.verify, _planned(engine, before, round_))
        engine.verify(round_, plan, available)
    rounds = decided = 0
    for number in range(_COMPARED_ROUNDS):
        round_ = engine.next_round()
        before = _copy(policy)
        again = _copy(policy) if number % 4 == 0 else None
        available = engine.draft(policy, round_)
        engine.settle(policy)
        plan = engine.plan(policy, round_, available)
        # What a drafter says past a limit of tokens is never verified in any world: mere chance.
        below = plan.verify < round_.possible
        hidden = (np.arange(KMAX) > plan.verify[:, None]) & below[:, None]
        if hidden.any():
            rounds += 1
            other = _planned(engine, before, _rewritten(round_, hidden, number % 4, random))
            _require_same(engine, plan.verify, other)
        if again is not None:
            whole = np.ones_like(hidden)
            other = _planned(engine, again, _rewritten(round_, whole, 2, random))
            decided += other.tolist() != plan.verify.tolist()
        engine.verify(round_, plan, available)
    return TwoWorlds(rounds=rounds, decided_by_signal=decided)


def _copy(policy: Policy) -> Policy:
    try:
        return copy.deepcopy(policy)
    except Exception as error:
        raise AssertionError(
            f"copy.deepcopy of the policy raised {type(error).__name__}: {error}; it is needed to "
            "compare two worlds"
        ) from error


def _require_copied(one: IntArray, other: IntArray) -> None:
    if one.tolist() != other.tolist():
        raise AssertionError(
            f"copy.deepcopy of the policy plans {other.tolist()} where it plans {one.tolist()}: "
            "keep its state, random generators included, in attributes that can be copied, not in "
            "closures or globals"
        )


def _planned(engine: MadeUpEngine, policy: Policy, round_: Round) -> IntArray:
    """[B] K_i of the round."""
    available = engine.draft(policy, round_)
    engine.settle(policy)
    return engine.plan(policy, round_, available).verify


def _rewritten(round_: Round, hidden: BoolArray, how: int, random: np.random.Generator) -> Round:
    """The round in a world in which the drafter says something else at the hidden positions."""
    drawn: FloatArray = random.random(hidden.shape)
    if how == 0:
        drawn = np.full(hidden.shape, _HIGH)
    elif how == 1:
        drawn = np.full(hidden.shape, _LOW)
    elif how == 3:  # a part of it: changes that could make up for each other
        hidden = hidden & (random.random(hidden.shape) < 0.5)
    other = copy.copy(round_)
    said = ~np.isnan(round_.confidence)
    other.confidence = np.where(hidden & said, drawn, round_.confidence)
    other.entropy = np.where(hidden & said, entropy_of(drawn), round_.entropy)
    return other


def _require_same(engine: MadeUpEngine, one: IntArray, other: IntArray) -> None:
    if one.tolist() == other.tolist():
        return
    capability = engine.capability
    asked = ", asked after each pass" if capability.stops_drafting else ""
    raise AssertionError(
        f"level {capability.level.name}{asked}, step {engine.step}: K {one.tolist()} becomes "
        f"{other.tolist()} by what the drafter says at positions that {one.tolist()} leaves "
        "unverified; sampled output is biased (decide by positions up to the first one left out, "
        "or say provenance.greedy_drafts_only)"
    )
