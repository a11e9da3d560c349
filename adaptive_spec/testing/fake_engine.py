"""Made-up engine steps that the conformance suite drives a policy with.

Requests come and go, their drafts are accepted by a hazard that the drafter's confidence tells,
and a verified token has a price, so that a policy has reasons to choose. Each round goes as in an
engine: draft (asking after each pass where the policy wants that), learn from the step before,
plan, verify.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.policy import DraftStopper, Policy
from adaptive_spec.step import (
    Capability,
    DraftPass,
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
"""Of requests whose drafter says nothing in a round."""
_CAPPED_SHARE = 0.2
"""Of requests that near a limit of tokens."""


def capabilities(level: Level, *, stops: bool) -> tuple[Capability, ...]:
    """Engines of a level: a plain one, and one with a ladder, captured sizes or early stops."""
    plain = Capability(level=level, max_draft_tokens=KMAX)
    if level is Level.UNIFORM:
        return plain, Capability(level=level, max_draft_tokens=KMAX, ladder=(0, 1, 3, 5))
    captured = Capability(
        level=level,
        max_draft_tokens=KMAX,
        token_buckets=(4, 8, 12, 16, 24, 32),
        stops_drafting=stops and level is Level.FULL,
    )
    return plain, captured


class Round:
    """What one round of drafting and verification would bring, whatever is decided.

    Attributes:
        names: [B] of the requests.
        slots: [B]
        possible: [B] the most drafts that could be used.
        confidence: [B, Kmax] what the drafter would say at each position; rows of nan: nothing.
        entropy: [B, Kmax] nats, likewise.
        run: [B] drafts that would be accepted if all were verified.
    """

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


def entropy_of(confidence: FloatArray) -> FloatArray:
    """Nats of a distribution with this maximum and eight other tokens of equal probability."""
    top = np.clip(confidence, 1e-6, 1.0 - 1e-6)
    entropy: FloatArray = -top * np.log(top) - (1.0 - top) * np.log((1.0 - top) / 8.0)
    return entropy


class MadeUpEngine:
    """Runs rounds; deterministic, but for what the policy decides.

    Args:
        capability: what it allows.
        signal: it passes the drafter's confidence and entropy on.
        prefix: of the requests' names.
    """

    def __init__(
        self, capability: Capability, *, signal: bool = False, prefix: str = "request"
    ) -> None:
        self.capability = capability
        self.step = 0
        self._signal = signal
        self._prefix = prefix
        self._random = np.random.default_rng(3)
        self._slots = RequestSlots()
        self._alive: list[str] = []
        self._born = 0
        self._ended: list[str] = []
        self._depth = KMAX
        self._now = 100.0
        self._finished: FinishedStep | None = None

    def next_round(self, *, turnover: float = 0.2) -> Round:
        """Requests that end or arrive, and what the drafter will say. Ended ones go in `settle`."""
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
        return Round(self._alive, slots, random)

    def draft(self, policy: Policy, round_: Round) -> IntArray:
        """[B] drafts made and kept for the next verification."""
        depth = self._depth if self.capability.steers_depth else KMAX
        asks = self._signal and self.capability.stops_drafting
        if not (asks and isinstance(policy, DraftStopper)):
            return np.minimum(round_.possible, depth)
        drafting = np.ones(len(round_.slots), dtype=np.bool_)
        kept: IntArray = np.zeros(len(round_.slots), dtype=np.int64)
        for position in range(depth):
            verdict = policy.after_draft_pass(
                DraftPass(
                    step=self.step - 1,
                    position=position,
                    slots=round_.slots,
                    drafting=drafting,
                    confidence=round_.confidence[:, : position + 1],
                    entropy=round_.entropy[:, : position + 1],
                )
            )
            admitted = drafting & verdict.admitted
            kept += admitted
            drafting = admitted & verdict.drafting
            if not drafting.any():
                break
        return np.minimum(round_.possible, kept)

    def settle(self, policy: Policy) -> None:
        """The policy learns from the step before and forgets who ended in it."""
        if self._finished is not None:
            policy.observe(self._finished)
        ended = [self._slots.get(name) for name in self._ended]
        known = np.array([slot for slot in ended if slot is not None], dtype=np.int64)
        if known.size:
            policy.forget(known)

    def plan(self, policy: Policy, round_: Round, available: IntArray) -> SpecPlan:
        """The policy's plan. Raises AssertionError if the engine could not run it."""
        context = self.context(round_, available)
        plan = policy.plan(context)
        fault = plan_fault(plan, context)
        if fault:
            raise AssertionError(f"level {self.capability.level.name}: {fault}")
        return plan

    def context(self, round_: Round, available: IntArray) -> StepContext:
        """What is known before verification: signals of the drafts at hand only."""
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
            now=self._now,
        )

    def verify(self, round_: Round, plan: SpecPlan, available: IntArray) -> StepOutcome:
        """Run the plan; what comes of it waits for the next `settle`."""
        context = self.context(round_, available)
        for name in self._ended:
            self._slots.release(name)
        accepted = np.minimum(round_.run, plan.verify)
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
        )
        self._finished = finished_step(context, plan, outcome)
        self._depth = plan.draft_depth
        self.step += 1
        return outcome

    def run(self, policy: Policy, steps: int, *, turnover: float = 0.2) -> list[SpecPlan]:
        """So many rounds; their plans."""
        plans = []
        for _ in range(steps):
            round_ = self.next_round(turnover=turnover)
            available = self.draft(policy, round_)
            self.settle(policy)
            plan = self.plan(policy, round_, available)
            self.verify(round_, plan, available)
            plans.append(plan)
        return plans

    def end(self, policy: Policy) -> int:
        """All requests end; how many there have been."""
        self._ended, self._alive = self._alive, []
        self.settle(policy)
        for name in self._ended:
            self._slots.release(name)
        self._ended, self._finished = [], None
        return self._born
