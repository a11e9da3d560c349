"""Fake engine that drives a policy in the conformance suite.

Requests come and go, drafts are accepted with a hazard that the drafter's confidence reveals, and
each verified token costs time, so that the choice of K matters. Each round runs as in an engine:
draft, learn from the step before, plan, verify.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.policy import Policy
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    SpecPlan,
    StepContext,
    StepOutcome,
)

KMAX = 5
_UNKNOWN_SHARE = 0.1
"""Share of requests without a drafter signal in a round."""
_CAPPED_SHARE = 0.2
"""Share of requests close to a token limit."""


def capabilities(level: Level) -> tuple[Capability, ...]:
    """Return a level's engines: a plain one; one with a ladder or captured sizes."""
    plain = Capability(level=level, max_draft_tokens=KMAX)
    if level is Level.UNIFORM:
        return plain, Capability(level=level, max_draft_tokens=KMAX, ladder=(0, 1, 3, 5))
    captured = Capability(
        level=level,
        max_draft_tokens=KMAX,
        token_buckets=(4, 8, 12, 16, 24, 32),
    )
    return plain, captured


class Round:
    """Random results of one round of drafting and verification, independent of decisions.

    Attributes:
        names: [B] request names.
        slots: [B] request slots.
        possible: [B] most drafts that can be used.
        confidence: [B, Kmax] drafter confidence at each position; rows of nan without a signal.
        entropy: [B, Kmax] nats, likewise.
        run: [B] drafts that full verification would accept.
        found, match, right: [B] looked-up drafts, length of their match, and how many of them are
            right; None without a second source.
    """

    found: IntArray | None = None
    match: IntArray | None = None
    right: IntArray | None = None

    def __init__(self, names: Sequence[str], slots: IntArray, random: np.random.Generator) -> None:
        batch = len(names)
        self.names = list(names)
        self.slots = slots
        capped = random.random(batch) < _CAPPED_SHARE
        left = random.integers(0, KMAX, batch)
        self.possible: IntArray = np.where(capped, left, KMAX).astype(np.int64)
        skill = np.array([(int(name.rsplit("-", 1)[1]) % 5) * 0.7 - 0.6 for name in names])
        odds = skill[:, None] + 1.6 * random.standard_normal((batch, KMAX))
        hazard = 1.0 / (1.0 + np.exp(-odds))
        accepted = random.random((batch, KMAX)) < hazard
        self.run: IntArray = accepted.cumprod(axis=1).sum(axis=1).astype(np.int64)
        unknown = random.random(batch) < _UNKNOWN_SHARE
        self.confidence: FloatArray = np.where(unknown[:, None], np.nan, hazard)
        self.entropy: FloatArray = entropy_of(self.confidence)

    def look_up(self, random: np.random.Generator) -> None:
        """Add looked-up drafts: longer matches are right more often."""
        batch = len(self.names)
        self.match = random.integers(0, 12, batch)
        self.found = np.minimum(np.where(self.match > 0, KMAX, 0), self.possible)
        hits = random.random((batch, KMAX)) < (self.match / 12.0)[:, None]
        self.right = np.minimum(hits.cumprod(axis=1).sum(axis=1), self.found)


def entropy_of(confidence: FloatArray) -> FloatArray:
    """Return the entropy (nats) of a maximum probability and eight equally likely other tokens."""
    top = np.clip(confidence, 1e-6, 1.0 - 1e-6)
    entropy: FloatArray = -top * np.log(top) - (1.0 - top) * np.log((1.0 - top) / 8.0)
    return entropy


class FakeEngine:
    """Engine that runs rounds; deterministic for given decisions.

    Args:
        capability: control options.
        signal: pass on the drafter's confidence and entropy.
        prefix: prefix of the request names.
        lookup: drafts are looked up, too.
    """

    def __init__(
        self,
        capability: Capability,
        *,
        signal: bool = False,
        prefix: str = "request",
        lookup: bool = False,
    ) -> None:
        self.capability = capability
        self.step = 0
        self._signal = signal
        self._prefix = prefix
        self._lookup = lookup
        self._random = np.random.default_rng(3)
        self._slots = RequestSlots()
        self._alive: list[str] = []
        self._born = 0
        self._ended: list[str] = []
        self._depth = KMAX
        self._now = 100.0
        self._finished: FinishedStep | None = None

    def next_round(self, *, turnover: float = 0.2) -> Round:
        """End and admit requests and draw the next round; `settle` forgets the ended requests."""
        random = self._random
        gone = random.random(len(self._alive)) < turnover / max(len(self._alive), 1)
        if turnover >= 1.0:
            gone[:] = True
        self._ended = [name for name, ends in zip(self._alive, gone, strict=True) if ends]
        self._alive = [name for name, ends in zip(self._alive, gone, strict=True) if not ends]
        while len(self._alive) < 2 + self.step % 4:
            self._alive.append(f"{self._prefix}-{self._born}")
            self._born += 1
        slots = np.array([self._slots.assign(name) for name in self._alive], dtype=np.int64)
        round_ = Round(self._alive, slots, random)
        if self._lookup:
            round_.look_up(random)
        return round_

    def draft(self, round_: Round) -> IntArray:
        """Return [B] the drafts made for the next verification."""
        depth = self._depth if self.capability.steers_depth else KMAX
        return np.minimum(round_.possible, depth)

    def settle(self, policy: Policy) -> None:
        """Let the policy learn from the step before and forget the requests that ended in it."""
        if self._finished is not None:
            policy.observe(self._finished)
        ended = [self._slots.get(name) for name in self._ended]
        known = np.array([slot for slot in ended if slot is not None], dtype=np.int64)
        if known.size:
            policy.forget(known)

    def plan(self, policy: Policy, round_: Round, available: IntArray) -> SpecPlan:
        """Return the policy's plan. Raises AssertionError if the engine could not run it."""
        context = self.context(round_, available)
        plan = policy.plan(context)
        fault = plan_fault(plan, context)
        if fault:
            raise AssertionError(f"level {self.capability.level.name}: {fault}")
        return plan

    def context(self, round_: Round, available: IntArray) -> StepContext:
        """Build the context before verification, with signals of the available drafts only."""
        batch = len(round_.slots)
        at_hand = np.arange(KMAX) < available[:, None]
        return StepContext(
            step=self.step,
            capability=self.capability,
            request_ids=round_.names,
            slots=round_.slots,
            context_tokens=np.full(batch, 50 + self.step, dtype=np.int64),
            draft_available=available,
            draft_possible=round_.possible,
            engine_k=KMAX,
            tpot_target=np.full(batch, np.inf),
            task=np.full(batch, -1, dtype=np.int64),
            temperature=np.ones(batch),
            confidence=np.where(at_hand, round_.confidence, np.nan) if self._signal else None,
            entropy=np.where(at_hand, round_.entropy, np.nan) if self._signal else None,
            lookup_available=round_.found,
            lookup_match=round_.match,
            now=self._now,
        )

    def verify(self, round_: Round, plan: SpecPlan, available: IntArray) -> StepOutcome:
        """Run the plan; the next `settle` delivers the results."""
        context = self.context(round_, available)
        for name in self._ended:
            self._slots.release(name)
        right = round_.run
        if plan.from_lookup is not None and round_.right is not None:
            right = np.where(plan.from_lookup, round_.right, right)
        accepted = np.minimum(right, plan.verify)
        batch = len(round_.slots)
        tokens = batch + int(plan.verify.sum())
        padded = -(-tokens // 4) * 4
        seconds = 0.01 + 0.0012 * padded + 0.0015 * plan.draft_depth
        self._now += seconds
        outcome = StepOutcome(
            step=self.step,
            slots=round_.slots,
            verified=plan.verify,
            accepted=accepted,
            emitted=accepted + 1,
            batch_size=batch,
            batch_tokens=tokens,
            context_tokens=batch * (50 + self.step),
            prefill_tokens=0,
            draft_depth=plan.draft_depth,
            ragged=bool(np.ptp(plan.verify) > 0),
            seconds=seconds,
            now=self._now,
            lookup_agreed=None if round_.right is None else np.minimum(round_.right, accepted + 1),
        )
        self._finished = finished_step(context, plan, outcome)
        self._depth = plan.draft_depth
        self.step += 1
        return outcome

    def run(self, policy: Policy, steps: int, *, turnover: float = 0.2) -> list[SpecPlan]:
        """Run rounds and return their plans."""
        plans = []
        for _ in range(steps):
            round_ = self.next_round(turnover=turnover)
            available = self.draft(round_)
            self.settle(policy)
            plan = self.plan(policy, round_, available)
            self.verify(round_, plan, available)
            plans.append(plan)
        return plans

    def end(self, policy: Policy) -> int:
        """End all requests; return the total number of requests."""
        self._ended, self._alive = self._alive, []
        self.settle(policy)
        for name in self._ended:
            self._slots.release(name)
        self._ended, self._finished = [], None
        return self._born
