"""Base of the bandits' models of acceptance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any

import msgspec
import numpy as np

from adaptive_spec.policies.acceptance.hazard_model import survival_of
from adaptive_spec.policies.bandits.hazards import HazardCounts
from adaptive_spec.policies.planned import Choice, Drafts
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import Capability, FinishedStep, FloatArray, IntArray, StepContext

Discount = Annotated[float, msgspec.Meta(gt=0, le=1)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]

_CEILING = 0.995


class BanditAcceptance:
    """Hazards that explore by themselves: the plan is taken as it is. No state is saved."""

    saved_as = "hazards"
    observations = None

    def forecast_made(self, forecast: StepForecast) -> None:
        """Do nothing: the drafts have one source."""

    def choose(self, forecast: StepForecast, drafts: Drafts, least_depth: int) -> Choice:
        """Choose as planned."""
        return Choice(forecast.best.verify, forecast.best.draft_depth, "planned")

    def forget(self, slots: IntArray) -> None:
        """Do nothing: no state is kept per request."""

    def widen(self, *, centre: bool = False) -> None:
        """Do nothing: evidence fades with every observed step."""

    def state(self) -> dict[str, Any]:
        """Return an empty state: hazards are learned anew within some steps."""
        return {}

    def check_state(self, saved: Any) -> None:
        """Do nothing: only the cost profile is restored."""

    def restore(self, saved: Any) -> None:
        """Do nothing: only the cost profile is restored."""


class PositionAcceptance(BanditAcceptance, ABC):
    """Hazards by position alone, the same for all requests.

    Args:
        discount: of the evidence per step that verified drafts.
    """

    def __init__(self, discount: float) -> None:
        self._discount = discount

    @abstractmethod
    def hazards(self, evidence: HazardCounts) -> FloatArray:
        """Return [Kmax] hazards to plan with."""

    def start(self, capability: Capability) -> None:
        """Begin on an engine, knowing nothing."""
        self._evidence = HazardCounts(capability.max_draft_tokens, discount=self._discount)

    def predict_drafts(self, context: StepContext, step_times: CostModel) -> Drafts:
        """Return the survival of the drafts by these hazards."""
        hazards = np.minimum(self.hazards(self._evidence), _CEILING)
        of_each = np.repeat(hazards[:, None], context.batch_size, axis=1)
        return Drafts(context=context, survival=survival_of(of_each))

    def learn_acceptance(self, step: FinishedStep, step_times: CostModel) -> bool:
        """Learn from a finished step, whatever plan has run."""
        if step.outcome.slots.size:
            self._evidence.count_outcomes(step.outcome.verified, step.outcome.accepted)
        return False
