"""Losslessness check for sampled drafts: K must not depend on signals of unverified drafts.

A round verifies K_i drafts of request i. The output keeps the target's distribution, jointly over
the batch, if verified draft tokens alone decide the event {K = k}: a deeper token then never
matters, and the target samples in its place, which equals full verification (Leviathan et al.,
arXiv 2211.17192). The drafter's signal at position j follows from the tokens before j, so K may use
the confidence and entropy of each request at positions 0..K_i: of the verified drafts and of the
first unverified one.

The check plans each round twice, from the same policy state: once with the true signals, and once
with all deeper signals rewritten, for all requests at once. Both K must agree. Rewriting one
request at a time would miss rules that couple the deeper positions of two requests: their marginal
distributions are right, their joint distribution is not.

The check covers a whole round, from drafting to the plan, so a draft that is made and then dropped
counts as unverified. Allowed rules: thresholds on a position's own distribution, ranking by live
survival within a stale budget, and a depth for the *next* round from this round's signals.
"""

from __future__ import annotations

import copy

import msgspec
import numpy as np

from adaptive_spec.policy import Policy
from adaptive_spec.step import BoolArray, Capability, FloatArray, IntArray, SpecPlan
from adaptive_spec.testing.fake_engine import KMAX, FakeEngine, Round, entropy_of

_LEARNING_ROUNDS = 50
"""Rounds before the first comparison, for the policy's models to learn."""
_CONTROL_ROUNDS = 8
"""Rounds without rewriting: a copy of the policy must make the same plan."""
_COMPARED_ROUNDS = 60
_HIGH, _LOW = 0.98, 0.02


class NoninterferenceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of compared rounds.

    Attributes:
        rounds: rounds in which a signal could be rewritten.
        decided_by_signal: rounds, among those tested, in which K changes if *all* signals are
            rewritten; 0 if the policy does not use the signal live, so that the check could find
            nothing.
    """

    rounds: int
    decided_by_signal: int


def check_noninterference(
    policy: Policy, capability: Capability, *, lookup: bool = False
) -> NoninterferenceReport:
    """Check that K does not depend on deeper signals.

    Args:
        policy: a new policy. `copy.deepcopy` must copy all of it: both plans would share a random
            generator that a closure holds.
        capability: control options of the engine.
        lookup: the engine looks drafts up, too. The choice of a source may use the signal at a
            request's first position, as K does.

    Raises AssertionError with one line that names the step and both K.
    """
    random = np.random.default_rng(17)
    engine = FakeEngine(capability, signal=True, lookup=lookup)
    engine.run(policy, _LEARNING_ROUNDS)
    for _ in range(_CONTROL_ROUNDS):
        round_ = engine.next_round()
        before = _copy(policy)
        available = engine.draft(round_)
        engine.settle(policy)
        plan = engine.plan(policy, round_, available)
        _require_copied(_decided(plan), _planned(engine, before, round_))
        engine.verify(round_, plan, available)
    rounds = decided = 0
    for number in range(_COMPARED_ROUNDS):
        round_ = engine.next_round()
        before = _copy(policy)
        again = _copy(policy) if number % 4 == 0 else None
        available = engine.draft(round_)
        engine.settle(policy)
        plan = engine.plan(policy, round_, available)
        # Signals past a token limit belong to drafts that no plan can verify.
        verified = plan.verify
        if plan.from_lookup is not None:
            verified = np.where(plan.from_lookup, 0, verified)
        below = verified < round_.possible
        hidden = (np.arange(KMAX) > verified[:, None]) & below[:, None]
        if hidden.any():
            rounds += 1
            other = _planned(engine, before, _rewritten(round_, hidden, number % 4, random))
            _require_same(engine, _decided(plan), other)
        if again is not None:
            whole = np.ones_like(hidden)
            other = _planned(engine, again, _rewritten(round_, whole, 2, random))
            decided += other.tolist() != _decided(plan).tolist()
        engine.verify(round_, plan, available)
    return NoninterferenceReport(rounds=rounds, decided_by_signal=decided)


def _copy(policy: Policy) -> Policy:
    try:
        return copy.deepcopy(policy)
    except Exception as error:
        raise AssertionError(
            f"copy.deepcopy of the policy raised {type(error).__name__}: {error}; the check "
            "plans each round with two copies"
        ) from error


def _require_copied(one: IntArray, other: IntArray) -> None:
    if one.tolist() != other.tolist():
        raise AssertionError(
            f"copy.deepcopy of the policy plans {other.tolist()} where it plans {one.tolist()}: "
            "keep its state, random generators included, in attributes that can be copied, not in "
            "closures or globals"
        )


def _planned(engine: FakeEngine, policy: Policy, round_: Round) -> IntArray:
    """Plan the round with a copy of the policy; return what it decided."""
    available = engine.draft(round_)
    engine.settle(policy)
    return _decided(engine.plan(policy, round_, available))


def _decided(plan: SpecPlan) -> IntArray:
    """[B] K_i, or -1 - K_i of the requests that verify looked-up drafts."""
    if plan.from_lookup is None:
        return plan.verify
    return np.where(plan.from_lookup, -1 - plan.verify, plan.verify)


def _rewritten(round_: Round, hidden: BoolArray, how: int, random: np.random.Generator) -> Round:
    """Return the round with other signals at the hidden positions."""
    drawn: FloatArray = random.random(hidden.shape)
    if how == 0:
        drawn = np.full(hidden.shape, _HIGH)
    elif how == 1:
        drawn = np.full(hidden.shape, _LOW)
    elif how == 3:  # a random part, for changes that could cancel each other
        hidden = hidden & (random.random(hidden.shape) < 0.5)
    other = copy.copy(round_)
    said = ~np.isnan(round_.confidence)
    other.confidence = np.where(hidden & said, drawn, round_.confidence)
    other.entropy = np.where(hidden & said, entropy_of(drawn), round_.entropy)
    return other


def _require_same(engine: FakeEngine, one: IntArray, other: IntArray) -> None:
    if one.tolist() == other.tolist():
        return
    capability = engine.capability
    raise AssertionError(
        f"level {capability.level.name}, step {engine.step}: K {one.tolist()} becomes "
        f"{other.tolist()} by the drafter's signals at positions that {one.tolist()} leaves "
        "unverified; sampled output is biased (decide by positions up to the first unverified one, "
        "or set provenance.greedy_drafts_only)"
    )
