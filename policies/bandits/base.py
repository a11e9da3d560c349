"""Base of the bandits that choose one K for the whole batch.

A drawn arm is drafted for at the end of its step, verified from the next step on, and held for a
few steps. A step's time consists of verifying one K and drafting for the next, so only steps in
which both belong to the same arm measure that arm. A change of load triggers a new draw.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.kernels import load_kernels
from adaptive_spec.policies.bandits.arms import arms_of, bin_of, propensities
from adaptive_spec.policies.bandits.saved_arrays import Arrays, check_schema, fill, to_state
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.policy import State
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    FloatArray,
    IntArray,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_MEASURED_DRAWS = 2
"""Draws of an arm to measure its time at a load; each draw is held for some steps."""

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Discount = Annotated[float, msgspec.Meta(gt=0, le=1)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class BanditOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of every bandit."""

    profile: str | None = None
    """File with an initial cost profile."""
    hold_steps: Positive = 4
    """Steps that an arm runs before the next draw."""


class Draw(NamedTuple):
    """A drawn arm."""

    arm: int
    """Index of the arm."""
    probabilities: FloatArray | None = None
    """[A] probabilities of the draw; None if the choice was not random or they are unknown."""
    reason: str = ""


class Decision(NamedTuple):
    """Decision of one step, kept as the memo of its plan."""

    load: int
    arm: int
    """Index of the verified arm."""
    probabilities: FloatArray | None
    most_drafts: int
    """Largest K_i of the plan."""


class Learner(Protocol):
    """Learns from steps and draws arms."""

    def draw(self, context: StepContext, load: int) -> Draw:
        """Return the arm to run next."""
        ...

    def learn(self, outcome: StepOutcome, decision: Decision | None) -> None:
        """Learn from a step; `decision` is the planned one, None if another plan ran."""
        ...

    def arrays(self) -> Arrays:
        """Return the arrays worth saving, by name; `restore` writes into them."""
        ...

    def restored(self) -> None:
        """Update derived values after a restore has written to the arrays."""
        ...


class BanditPolicy(ABC):
    """Policy of one K per batch, chosen by a learner."""

    name: ClassVar[str] = "bandit"

    def __init__(self, options: BanditOptions, *, seed: int = 0) -> None:
        load_kernels()
        self._bandit_options = options
        self._random = np.random.default_rng(seed)
        self._capability: Capability | None = None
        self._saved: State | None = None
        self._drafted: Draw | None = None
        self._load = -1
        self._held = 0

    @abstractmethod
    def make_learner(self, capability: Capability, costs: StepCosts) -> Learner:
        """Build the learner that draws the arms."""

    def plan(self, context: StepContext) -> SpecPlan:
        """Verify the arm drafted for before, and draft for the next one."""
        if self._capability is None:
            self._start(context.capability)
        if context.batch_size == 0:
            depth = context.engine_k if self._drafted is None else self._k(self._drafted)
            return plan_of(context, np.zeros(0, dtype=np.int64), depth, "nothing decodes")
        load = bin_of(context.batch_size)
        verified = self._drafted
        drafted = verified
        if drafted is None or load != self._load or self._held >= self._bandit_options.hold_steps:
            drafted = self._learner.draw(context, load)
            self._held = 0
        self._held += 1
        self._load = load
        if verified is None or not context.capability.steers_depth:
            verified = drafted
        self._drafted = drafted
        k, depth = self._k(verified), self._k(drafted)
        verify = np.minimum(context.draft_available, k)
        propensity = None
        if verified.probabilities is not None:
            steers_depth = context.capability.steers_depth
            limits = context.draft_possible if steers_depth else context.draft_available
            if (verify == np.minimum(limits, k)).all():
                propensity = propensities(verified.probabilities, self._arms, limits, verify)
        decision = Decision(
            load=load,
            arm=verified.arm,
            probabilities=verified.probabilities,
            most_drafts=int(verify.max()),
        )
        plan = plan_of(context, verify, depth, verified.reason, propensity)
        return msgspec.structs.replace(plan, memo=decision)

    def observe(self, step: FinishedStep) -> None:
        """Learn from a finished step."""
        if self._capability is None:
            return
        outcome, decision = step.outcome, step.plan.memo
        self._costs.learn(outcome)
        if outcome.batch_size == 0 or outcome.slots.size == 0:
            return
        if decision is not None and decision.most_drafts != int(outcome.verified.max()):
            decision = None  # fail-open, shadow mode, a recorded trace
        self._learner.learn(outcome, decision)

    def forget(self, slots: IntArray) -> None:
        """Do nothing: no state is kept per request."""

    def state(self) -> State:
        """Return the learner's arrays as nested lists."""
        if self._capability is None:
            return self._saved or {}
        return {
            "schema": 1,
            "arms": self._arms.tolist(),
            "learned": to_state(self._learner.arrays()),
        }

    def restore(self, state: State) -> None:
        """Load a saved state of the same arms. Raises PolicyError otherwise."""
        if not state:
            return
        check_schema(state, self.name)
        self._saved = state
        if self._capability is not None:
            self._start(self._capability)

    def _start(self, capability: Capability) -> None:
        self._capability = capability
        self._arms = arms_of(capability)
        self._costs = StepCosts(capability, self._bandit_options.profile, attempts=_MEASURED_DRAWS)
        self._learner = self.make_learner(capability, self._costs)
        if self._saved is not None:
            if self._saved.get("arms") != self._arms.tolist():
                raise PolicyError(
                    f"{self.name} state is for K = {self._saved.get('arms')}, the engine runs "
                    f"{self._arms.tolist()}"
                )
            fill(self._learner.arrays(), self._saved["learned"], self.name)
            self._learner.restored()

    def _k(self, draw: Draw) -> int:
        return int(self._arms[draw.arm])


def plan_of(
    context: StepContext,
    verify: IntArray,
    depth: int,
    reason: str,
    propensity: FloatArray | None = None,
) -> SpecPlan:
    """Plan to verify `verify` [B] and draft to `depth`; OFF-warm where both are 0."""
    # OFF-cold would leave live requests without drafter state for the next arm.
    off = depth == 0 and not verify.any()
    return SpecPlan(
        step=context.step,
        verify=verify,
        draft_depth=depth,
        mode=Mode.OFF_WARM if off else Mode.ON,
        reason=reason,
        propensity=propensity,
    )
