"""The base of the two linear bandits: one of two forms, by option `cascade`."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.policies.bandits.arms import arms_of
from adaptive_spec.policies.bandits.base import BanditOptions, BanditPolicy, Discount, Learner
from adaptive_spec.policies.bandits.linear_plain import LinearLearner
from adaptive_spec.policies.bandits.request_cascade import Exploration, RequestCascade
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.policy import State
from adaptive_spec.step import Capability, IntArray, SpecPlan, StepContext, StepOutcome


class LinearBanditOptions(BanditOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of both linear bandits."""

    discount: Discount = 0.999
    """Of the evidence, per step that is learned from."""
    ridge: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Strength of the first guess, in observations."""


class LinearBanditPolicy:
    """Delegates to the form that was asked for."""

    name: ClassVar[str] = "linear"

    def __init__(
        self, options: LinearBanditOptions, exploration: Exploration, *, seed: int
    ) -> None:
        self._form: RequestCascade | _Plain
        if options.cascade:
            self._form = RequestCascade(
                self.name,
                exploration,
                discount=options.discount,
                ridge=options.ridge,
                profile=options.profile,
                seed=seed,
            )
        else:
            self._form = _Plain(self.name, options, exploration, seed=seed)

    def plan(self, context: StepContext) -> SpecPlan:
        """Decide for one step."""
        return self._form.plan(context)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn from a finished step."""
        self._form.observe(outcome)

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        self._form.forget(slots)

    def state(self) -> State:
        """The regressions' sums."""
        return self._form.state()

    def restore(self, state: State) -> None:
        """Take up a saved state of the same form. Raises PolicyError otherwise."""
        self._form.restore(state)


class _Plain(BanditPolicy):
    def __init__(
        self, name: str, options: LinearBanditOptions, exploration: Exploration, *, seed: int
    ) -> None:
        super().__init__(options, seed=seed)
        self.label = name
        self._options = options
        self._exploration = exploration

    def make_learner(self, capability: Capability, costs: StepCosts) -> Learner:
        """One regression per K."""
        return LinearLearner(
            len(arms_of(capability)),
            costs,
            self._exploration,
            discount=self._options.discount,
            ridge=self._options.ridge,
            random=self._random,
        )
