"""`linucb`: upper confidence bounds on hazards that are linear in a request's features.

The bound on hazard j of request i is theta_j . x_i + c sqrt(x_i' A_j^-1 x_i) (Li, Chu, Langford,
Schapire, arXiv 1003.0146). theta_j is fitted to the observations of position j from any K
(contextual combinatorial cascading bandits: Li, Wang, Zhang, Chen, ICML 2016). The planner computes
survival from the bounds and finds the K_i and the depth with the most tokens per second.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.kernels import load_kernels
from adaptive_spec.planning.planner import best_admission
from adaptive_spec.policies.bandits.bandit_policy import Discount, NonNegative, plan_of
from adaptive_spec.policies.bandits.features import DIMENSIONS, RequestFeatures
from adaptive_spec.policies.bandits.ridge import RidgeRegressions
from adaptive_spec.policies.bandits.saved_arrays import Arrays, check_schema, fill, to_state
from adaptive_spec.policies.bandits.step_costs import StepCosts
from adaptive_spec.policy import State
from adaptive_spec.step import Capability, FinishedStep, FloatArray, IntArray, SpecPlan, StepContext

_FLOOR, _CEILING = 0.01, 0.995
_MEASURE_EVERY = 4
_MEASURED_STEPS = 5
_PRIOR_HAZARD = 0.67


class LinUcbOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `linucb`."""

    profile: str | None = None
    """File with an initial cost profile."""
    exploration: NonNegative = 0.2
    """c, the width of the confidence bounds."""
    discount: Discount = 0.999
    """Discount of the evidence per observed step."""
    ridge: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Strength of the prior, in observations."""


class LinUcbPolicy:
    """LinUCB, per request."""

    name: ClassVar[str] = "linucb"
    summary: ClassVar[str] = "bandit: LinUCB on request features; K per request"
    Options: ClassVar[type[msgspec.Struct]] = LinUcbOptions

    def __init__(self, options: LinUcbOptions, *, seed: int = 0) -> None:
        del seed  # nothing is random
        load_kernels()
        self._options = options
        self._capability: Capability | None = None
        self._saved: State | None = None
        self._features = RequestFeatures()
        self._measure_next: int | None = None
        self._last_depth: int | None = None

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan under optimistic hazards."""
        if self._capability is None:
            self._start(context.capability)
        if context.batch_size == 0:
            depth = context.engine_k if self._last_depth is None else self._last_depth
            return plan_of(context, np.zeros(0, dtype=np.int64), depth, "nothing decodes")
        rows = self._features.of_requests(context)
        cost = self._costs.model
        if not cost.ready:
            verify = np.minimum(context.draft_available, context.engine_k)
            plan = self._timed(context, verify, context.engine_k, "no step measured yet", None)
            return msgspec.structs.replace(plan, notes=(rows,))
        survival: FloatArray = np.cumprod(self._bounds(rows), axis=0, dtype=np.float64)
        best = best_admission(
            survival,
            np.ones(context.batch_size),
            context.draft_possible,
            context.draft_available,
            cost.verify_seconds(context.batch_size, int(context.context_tokens.sum()), 0),
            cost.draft_seconds(context.batch_size),
            context.capability,
        )
        plan = self._timed(context, best.verify, best.draft_depth, "planned", survival)
        return msgspec.structs.replace(plan, notes=(rows,))

    def observe(self, step: FinishedStep) -> None:
        """Learn step time and hazards."""
        if self._capability is None:
            return
        outcome = step.outcome
        self._costs.model.learn(outcome)
        if outcome.slots.size == 0:
            return
        if step.plan.notes:
            (features,) = step.plan.notes
            verified, accepted = outcome.verified, outcome.accepted
            positions = np.arange(self._capability.max_draft_tokens)[:, None]
            seen = positions < np.minimum(accepted + 1, verified)
            self._ridges.learn(features, (positions < accepted).astype(np.float64), seen)
        self._features.learn(outcome)

    def forget(self, slots: IntArray) -> None:
        """Reset the features of these slots."""
        self._features.forget(slots)

    def state(self) -> State:
        """Return the regressions' sums."""
        if self._capability is None:
            return self._saved or {}
        return {"schema": 1, "learned": to_state(self._arrays())}

    def restore(self, state: State) -> None:
        """Load a saved state of the same Kmax. Raises PolicyError otherwise."""
        if not state:
            return
        check_schema(state, self.name)
        self._saved = state
        if self._capability is not None:
            self._start(self._capability)

    def _start(self, capability: Capability) -> None:
        self._capability = capability
        self._arms = np.array(capability.uniform_values, dtype=np.int64)
        options = self._options
        self._costs = StepCosts(capability, options.profile, attempts=_MEASURED_STEPS)
        guess = np.zeros(DIMENSIONS)
        guess[0] = _PRIOR_HAZARD
        self._ridges = RidgeRegressions(
            capability.max_draft_tokens,
            DIMENSIONS,
            ridge=options.ridge,
            discount=options.discount,
            guess=guess,
        )
        if self._saved is not None:
            fill(self._arrays(), self._saved["learned"], self.name)
            try:
                self._ridges.solve()
            except np.linalg.LinAlgError as error:
                raise PolicyError(f"{self.name} state: `gram` cannot be inverted") from error

    def _arrays(self) -> Arrays:
        return {"gram": self._ridges.gram, "moment": self._ridges.moment}

    def _bounds(self, rows: FloatArray) -> FloatArray:
        """Return [Kmax, B] upper bounds of the hazards."""
        bound = self._ridges.mean(rows) + self._options.exploration * self._ridges.deviation(rows)
        clipped: FloatArray = np.clip(bound, _FLOOR, _CEILING)
        return clipped

    def _timed(
        self,
        context: StepContext,
        verify: IntArray,
        depth: int,
        reason: str,
        survival: FloatArray | None,
    ) -> SpecPlan:
        """Return the plan, or one that drafts and then verifies a K untimed at this load."""
        self._last_depth = depth
        if self._measure_next is not None:
            k, self._measure_next = self._measure_next, None
            verify = np.minimum(context.draft_available, k)
            return plan_of(context, verify, depth, f"measuring K = {k}")
        if context.step % _MEASURE_EVERY == 0:
            goodput = None
            if survival is not None:
                goodput = self._costs.goodput(context, survival.mean(axis=1), self._arms)
            index = self._costs.unmeasured(context, self._arms, goodput)
            if index is not None:
                self._measure_next = int(self._arms[index])
                return plan_of(context, verify, self._measure_next, "drafting to measure it")
        return plan_of(context, verify, depth, reason)
