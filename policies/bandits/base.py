"""How a bandit over K for the whole batch runs a step, whatever it learns.

An arm is drawn, drafted to at the end of that step, verified from the next step on, and held for a
few steps: a step's time is that of verifying one K and of drafting for the next, so only steps in
which both are the same arm measure it. A change of load draws anew at once.
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
"""Each is held for some steps."""

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Discount = Annotated[float, msgspec.Meta(gt=0, le=1)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class BanditOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of every bandit."""

    profile: str | None = None
    """File with a cost profile to start from."""
    hold_steps: Positive = 4
    """Steps an arm runs before the next is drawn."""


class Draw(NamedTuple):
    """An arm that has been drawn."""

    arm: int
    """Index of the arm."""
    probabilities: FloatArray | None = None
    """[A] with which it was drawn; None if it was not, or if they are not known."""
    reason: str = ""


class Decision(NamedTuple):
    """What a step runs; the memo of its plan."""

    load: int
    arm: int
    """Index of the arm that is verified."""
    probabilities: FloatArray | None
    most_drafts: int
    """Largest K_i of the plan."""


class Learner(Protocol):
    """Learns from steps and draws arms."""

    def draw(self, context: StepContext, load: int) -> Draw:
        """The arm to run next."""
        ...

    def learn(self, outcome: StepOutcome, decision: Decision | None) -> None:
        """Take up a step; `decision` is what was planned, None if something else ran."""
        ...

    def arrays(self) -> Arrays:
        """What is worth keeping, by name; written into on restore."""
        ...

    def restored(self) -> None:
        """The arrays have been written to."""
        ...


class BanditPolicy(ABC):
    """One K for the batch, by a learner."""

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
        """What learns and draws."""

    def plan(self, context: StepContext) -> SpecPlan:
        """Verify the arm that was drafted for, draft to the next one."""
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
        """Nothing is kept by request."""

    def state(self) -> State:
        """What the learner keeps, as nested lists."""
        if self._capability is None:
            return self._saved or {}
        return {
            "schema": 1,
            "arms": self._arms.tolist(),
            "learned": to_state(self._learner.arrays()),
        }

    def restore(self, state: State) -> None:
        """Take up a saved state of the same arms. Raises PolicyError otherwise."""
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
                    f"{self.name} state: it is for K = {self._saved.get('arms')}, the engine runs "
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
    """A plan that verifies `verify` [B] and drafts to `depth`; OFF-warm where both are nothing."""
    # OFF-cold would leave live requests without a drafter state for the next arm.
    off = depth == 0 and not verify.any()
    return SpecPlan(
        step=context.step,
        verify=verify,
        draft_depth=depth,
        mode=Mode.OFF_WARM if off else Mode.ON,
        reason=reason,
        propensity=propensity,
    )
