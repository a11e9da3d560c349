"""`linucb`: upper confidence bounds on hazards that are linear in a request's features.

The bound on hazard j of request i is theta_j . x_i + c sqrt(x_i' A_j^-1 x_i) (Li, Chu, Langford,
Schapire, arXiv 1003.0146). theta_j is fitted to the observations of position j from any K
(contextual combinatorial cascading bandits: Li, Wang, Zhang, Chen, ICML 2016). The planner computes
survival from the bounds and finds the K_i and the depth with the most tokens per second.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.acceptance.model import survival_of
from adaptive_spec.policies.bandits.bandit_policy import Discount, NonNegative
from adaptive_spec.policies.bandits.features import DIMENSIONS, RequestFeatures
from adaptive_spec.policies.bandits.ridge import RidgeRegressions
from adaptive_spec.policies.planned import PlannedPolicy
from adaptive_spec.policies.planning.step_forecast import StepForecast, forecast_step
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

_FLOOR, _CEILING = 0.01, 0.995
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


class LinearHazards:
    """Hazards by position, linear in a request's features. No state is saved."""

    def __init__(self, max_draft_tokens: int, options: LinUcbOptions) -> None:
        self._kmax = max_draft_tokens
        self._width = options.exploration
        self._features = RequestFeatures()
        guess = np.zeros(DIMENSIONS)
        guess[0] = _PRIOR_HAZARD
        self._ridges = RidgeRegressions(
            max_draft_tokens,
            DIMENSIONS,
            ridge=options.ridge,
            discount=options.discount,
            guess=guess,
        )

    def features(self, context: StepContext) -> FloatArray:
        """Return [B, d] features of the requests."""
        return self._features.of_requests(context)

    def bounds(self, rows: FloatArray) -> FloatArray:
        """Return [Kmax, B] upper bounds of the hazards."""
        bound = self._ridges.mean(rows) + self._width * self._ridges.deviation(rows)
        clipped: FloatArray = np.clip(bound, _FLOOR, _CEILING)
        return clipped

    def learn(self, outcome: StepOutcome, notes: tuple[FloatArray, ...]) -> None:
        """Learn from a finished step and the features of its plan, if it was planned."""
        for rows in notes:
            positions = np.arange(self._kmax)[:, None]
            seen = positions < np.minimum(outcome.accepted + 1, outcome.verified)
            self._ridges.learn(rows, (positions < outcome.accepted).astype(np.float64), seen)
        self._features.learn(outcome)

    def forget(self, slots: IntArray) -> None:
        """Reset the features of these slots."""
        self._features.forget(slots)

    def widen(self) -> None:
        """Do nothing: evidence fades with every observed step."""

    def state(self) -> dict[str, Any]:
        """Return an empty state: the coefficients are learned anew within some steps."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Do nothing: only the cost profile is restored."""


class LinUcbPolicy(PlannedPolicy[FloatArray]):
    """LinUCB, per request."""

    name: ClassVar[str] = "linucb"
    summary: ClassVar[str] = "bandit: LinUCB on request features; K per request"
    Options: ClassVar[type[msgspec.Struct]] = LinUcbOptions
    _saved_as: ClassVar[str] = "hazards"

    def __init__(self, options: LinUcbOptions, *, seed: int = 0) -> None:
        super().__init__(options.profile, 0.0, seed)
        self._options = options

    def _make_hazards(self, capability: Capability) -> LinearHazards:
        self._linear = LinearHazards(capability.max_draft_tokens, self._options)
        return self._linear

    def _see(self, context: StepContext) -> tuple[StepContext, FloatArray]:
        return context, self._linear.features(context)

    def _forecast(self, context: StepContext, seen: FloatArray) -> StepForecast:
        survival = survival_of(self._linear.bounds(seen))
        return forecast_step(context, survival, self._cost)

    def _plan_on(self, forecast: StepForecast, seen: FloatArray) -> SpecPlan:
        best = forecast.best
        self._last_depth = best.draft_depth
        return forecast.plan(best.verify, best.draft_depth, Mode.ON, "planned")

    def _with_notes(self, plan: SpecPlan, seen: FloatArray) -> SpecPlan:
        return msgspec.structs.replace(plan, notes=(seen,))

    def _learn(self, step: FinishedStep) -> None:
        self._linear.learn(step.outcome, step.plan.notes)
