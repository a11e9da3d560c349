"""Admission of drafts by the drafter's confidence, before they are verified.

The planner sets the price of a verified draft from finished rounds: the tokens it has to bring
(goodput of the plan times seconds). Position j of request i is admitted iff w_i s_ij reaches the
price, with s_ij the survival given the confidences up to j. The survival only ever falls along j
and prices never do, so the first position that fails ends the request's drafts.

Admission of (i, j) uses the request's confidences at 1..j and prices that are older than the
round, so the output distribution stays exact however drafts are sampled.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.acceptance.model import AcceptanceModel, survival_of
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.step import FloatArray, IntArray


class ConfidenceAdmission:
    """Admits drafts at hand by their confidence.

    Attributes:
        late: the engine reports the drafter's confidence only after the drafts were verified.
    """

    def __init__(self, acceptance: AcceptanceModel) -> None:
        self._acceptance = acceptance
        self.late = False

    @property
    def useful(self) -> bool:
        """Whether confidence predicts acceptance and arrives in time."""
        return self._acceptance.informative and not self.late

    def admit(
        self, forecast: StepForecast, hazard: FloatArray, signal: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Return [B] drafts to verify, and the survival [Kmax, B] given their confidence.

        Args:
            forecast: of this step.
            hazard: [Kmax, B] by history.
            signal: [Kmax, B] confidences of the drafts at hand.
        """
        context = forecast.context
        survival = survival_of(
            self._acceptance.hazard_given(signal, hazard, context.slots, context.task)
        )
        worth = survival if forecast.weights is None else survival * forecast.weights
        prices = forecast.verify_prices()
        verify = np.minimum(context.draft_available, (worth >= prices[:, None]).sum(axis=0))
        return verify, survival
