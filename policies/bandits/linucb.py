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
from adaptive_spec.policies.planned import Choice, Drafts, PlannedPolicy
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import Capability, FinishedStep, IntArray, StepContext

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
    ridge: Annotated[float, msgspec.Meta(ge=1e-6, le=1e6)] = 1.0
    """Strength of the prior, in observations."""


class LinearAcceptance:
    """Upper bounds on hazards by position, linear in a request's features. No state is saved."""

    saved_as = "hazards"
    observations = None
    """The bounds explore."""

    def __init__(self, options: LinUcbOptions) -> None:
        self._options = options

    def start(self, capability: Capability) -> None:
        """Begin on an engine, knowing nothing."""
        self._kmax = capability.max_draft_tokens
        self._features = RequestFeatures()
        guess = np.zeros(DIMENSIONS)
        guess[0] = _PRIOR_HAZARD
        self._ridges = RidgeRegressions(
            self._kmax,
            DIMENSIONS,
            ridge=self._options.ridge,
            discount=self._options.discount,
            guess=guess,
        )

    def look(self, context: StepContext, step_times: CostModel) -> Drafts:
        """Return the survival of the drafts by the upper bounds of their hazards."""
        rows = self._features.of_requests(context)
        width = self._options.exploration * self._ridges.deviation(rows)
        bound = np.clip(self._ridges.mean(rows) + width, _FLOOR, _CEILING)
        return Drafts(context=context, survival=survival_of(bound), notes=(rows,))

    def forecast_made(self, forecast: StepForecast) -> None:
        """Do nothing: the drafts have one source."""

    def choose(self, forecast: StepForecast, drafts: Drafts, least_depth: int) -> Choice:
        """Choose as planned."""
        return Choice(forecast.best.verify, forecast.best.draft_depth, "planned")

    def learn(self, step: FinishedStep, step_times: CostModel) -> bool:
        """Learn from a finished step and the features of its plan, if it was planned."""
        outcome = step.outcome
        for rows in step.plan.notes:
            positions = np.arange(self._kmax)[:, None]
            seen = positions < np.minimum(outcome.accepted + 1, outcome.verified)
            self._ridges.learn(rows, (positions < outcome.accepted).astype(np.float64), seen)
        self._features.learn(outcome)
        return False

    def forget(self, slots: IntArray) -> None:
        """Reset the features of these slots."""
        self._features.forget(slots)

    def widen(self) -> None:
        """Do nothing: evidence fades with every observed step."""

    def state(self) -> dict[str, Any]:
        """Return an empty state: the coefficients are learned anew within some steps."""
        return {}

    def check_state(self, saved: Any) -> None:
        """Do nothing: only the cost profile is restored."""

    def restore(self, saved: Any) -> None:
        """Do nothing: only the cost profile is restored."""


class LinUcbPolicy(PlannedPolicy):
    """LinUCB, per request."""

    name: ClassVar[str] = "linucb"
    summary: ClassVar[str] = "bandit: LinUCB on request features; K per request"
    Options: ClassVar[type[msgspec.Struct]] = LinUcbOptions

    def __init__(self, options: LinUcbOptions, *, seed: int = 0) -> None:
        super().__init__(LinearAcceptance(options), options.profile, tpot_allowance=0.0, seed=seed)
