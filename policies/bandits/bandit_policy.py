"""Base of the bandits that choose one K for the whole batch.

The value of K is sum_i (1 + sum_{j <= K} s_j) / T(K), with s_j the product of the first j hazards.
Each bandit supplies the hazards to plan with: upper confidence bounds, or samples of the posterior.
Both favour deeper positions, which are observed less often; every K observes the shallow ones.

A drawn K is drafted for at the end of its step, verified from the next step on, and held for a few
steps. A step's time consists of verifying one K and drafting for the next, so only steps in which
both are the same K measure its time. A change of load triggers a new draw.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, NamedTuple

import msgspec
import numpy as np

from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.policies.kernels import load_kernels, prepare_kernels
from adaptive_spec.policies.step_time.model import load_bin
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    FloatArray,
    IntArray,
    Mode,
    SpecPlan,
    StepContext,
)

_CEILING = 0.995
_MEASURE_EVERY_DRAWS = 2
_MEASURED_DRAWS = 2
"""Draws that measure a K at a load, each held for some steps."""

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Discount = Annotated[float, msgspec.Meta(gt=0, le=1)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class BanditOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of the bandits with one K per batch."""

    profile: str | None = None
    """File with an initial cost profile."""
    hold_steps: Positive = 4
    """Steps that a K runs before the next draw."""
    discount: Discount = 0.998
    """Discount of the evidence per observed step; 1 keeps it, for stationary traffic."""


class Draw(NamedTuple):
    """A drawn K.

    Attributes:
        arm: index of the K among the engine's uniform values.
        reason: reason of the draw, for people.
        measures: the draw is to learn the K's step time.
        probabilities: [A] probabilities of the draw; None if the choice was not random or they are
            unknown.
    """

    arm: int
    reason: str
    probabilities: FloatArray | None = None
    measures: bool = False


class BanditPolicy(StatelessPolicy, ABC):
    """Policy of one K per batch, drawn by a bandit.

    No state is saved: a restarted server learns the hazards anew within some steps.
    """

    name: ClassVar[str] = "bandit"
    prepare = staticmethod(prepare_kernels)

    def __init__(self, options: BanditOptions, *, seed: int = 0) -> None:
        load_kernels()
        self._bandit_options = options
        self._random = np.random.default_rng(seed)
        self._capability: Capability | None = None
        self._drafted: Draw | None = None
        self._load = -1
        self._held = 0
        self._draws = 0

    @abstractmethod
    def hazards(self, evidence: HazardCounts) -> FloatArray:
        """Return [M, Kmax] hazards to plan with: one row of bounds, or M samples."""

    @abstractmethod
    def pick(self, goodput: FloatArray) -> Draw:
        """Pick a K by [M, A] expected tokens per second under each row of hazards."""

    def plan(self, context: StepContext) -> SpecPlan:
        """Verify the K drafted for before, and draft for the next one."""
        if self._capability is None:
            self._start(context.capability)
        if context.batch_size == 0:
            depth = context.engine_k if self._drafted is None else self._k(self._drafted)
            return plan_of(context, np.zeros(0, dtype=np.int64), depth, "nothing decodes")
        load = load_bin(context.batch_size)
        verified = self._drafted
        drafted = verified
        if drafted is None or load != self._load or self._held >= self._bandit_options.hold_steps:
            drafted = self._draw(context)
            self._held = 0
        self._held += 1
        self._load = load
        if verified is None or not context.capability.steers_depth:
            verified = drafted
        self._drafted = drafted
        verify = np.minimum(context.draft_available, self._k(verified))
        propensity = self._propensity(context, verified, verify)
        plan = plan_of(context, verify, self._k(drafted), verified.reason, propensity)
        return msgspec.structs.replace(plan, measures=True) if verified.measures else plan

    def observe(self, step: FinishedStep) -> None:
        """Learn step time and hazards, whatever plan has run."""
        if self._capability is None:
            return
        outcome = step.outcome
        self._costs.model.learn(outcome)
        if outcome.batch_size and outcome.slots.size:
            self._evidence.learn(outcome.verified, outcome.accepted)

    def _start(self, capability: Capability) -> None:
        self._capability = capability
        self._arms = np.array(capability.uniform_values, dtype=np.int64)
        options = self._bandit_options
        self._costs = StepCosts(capability, options.profile, attempts=_MEASURED_DRAWS)
        self._evidence = HazardCounts(capability.max_draft_tokens, discount=options.discount)

    def _k(self, draw: Draw) -> int:
        return int(self._arms[draw.arm])

    def _draw(self, context: StepContext) -> Draw:
        self._draws += 1
        if not self._costs.model.ready:
            deepest = Draw(len(self._arms) - 1, "first step")
            return self._unmeasured(context, None) or deepest
        hazards = np.minimum(self.hazards(self._evidence), _CEILING)
        goodput = self._costs.goodput(context, np.cumprod(hazards, axis=-1), self._arms)
        if self._draws % _MEASURE_EVERY_DRAWS == 0:
            measuring = self._unmeasured(context, goodput.mean(axis=0))
            if measuring is not None:
                return measuring
        return self.pick(goodput)

    def _unmeasured(self, context: StepContext, goodput: FloatArray | None) -> Draw | None:
        index = self._costs.unmeasured(context, self._arms, goodput)
        return None if index is None else Draw(index, "measuring its time", measures=True)

    def _propensity(self, context: StepContext, draw: Draw, verify: IntArray) -> FloatArray | None:
        """Return [B] the probability of each request's K; None if unknown."""
        if draw.probabilities is None:
            return None
        steers_depth = context.capability.steers_depth
        limits = context.draft_possible if steers_depth else context.draft_available
        if (verify != np.minimum(limits, self._k(draw))).any():
            return None
        return propensities(draw.probabilities, self._arms, limits, verify)


def propensities(
    probabilities: FloatArray, arms: IntArray, limits: IntArray, verify: IntArray
) -> FloatArray:
    """Return [B] the probability of each request's K.

    Several K may give the same K_i to a request with few drafts: their probabilities add. The
    probability of the whole batch's K is that of the request with the most room, the smallest.

    Args:
        probabilities: [A] probabilities of the K values; one draw per batch.
        arms: [A] K values.
        limits: [B] drafts available to each request, whichever K is drawn.
        verify: [B] K_i that resulted from the draw.
    """
    outcome = np.minimum(limits[:, None], arms)
    return np.asarray((outcome == verify[:, None]) @ probabilities, dtype=np.float64)


def plan_of(
    context: StepContext,
    verify: IntArray,
    depth: int,
    reason: str,
    propensity: FloatArray | None = None,
) -> SpecPlan:
    """Plan to verify `verify` [B] and draft to `depth`; OFF-warm where both are 0."""
    # OFF-cold would leave live requests without drafter state for the next K.
    off = depth == 0 and not verify.any()
    return SpecPlan(
        step=context.step,
        verify=verify,
        draft_depth=depth,
        mode=Mode.OFF_WARM if off else Mode.ON,
        reason=reason,
        propensity=propensity,
    )
