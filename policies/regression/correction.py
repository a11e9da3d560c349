"""Online correction of a fitted head: logit h = m_j + a (f_ij - m_j) + b_j + u_i.

f_ij is the head's logit and m_j its running mean at a position. b_j (another drafter, other
traffic) and u_i (a single request) are those of `policies.acceptance.hazard_model`, from 0.
a scales the effect of the features: a model of varied traffic overrates chance differences where
requests are alike.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.acceptance.hazard_model import HazardModel, Observed
from adaptive_spec.step import FloatArray, IntArray

_NO_CORRECTION = 0.5
"""Prior hazard at which b_j starts at 0."""
_FIRST_EVIDENCE = 4.0
"""Fisher information of a = 1."""
_EVIDENCE_LIMIT = 400.0
"""Fisher information behind a, and behind each m_j, at which their memory is capped."""
_LARGEST_SCALE = 1.5


class CorrectedHead:
    """Corrections of one head.

    Attributes:
        effects: b_j and u_i.
        scale: a.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self.effects = HazardModel(max_draft_tokens, _NO_CORRECTION)
        self.scale = 1.0
        self._evidence = _FIRST_EVIDENCE
        self._mean: FloatArray = np.zeros(max_draft_tokens)
        self._weight: FloatArray = np.zeros(max_draft_tokens)

    def hazard(self, logits: FloatArray, slots: IntArray) -> FloatArray:
        """Return [Kmax, B] hazards for the head's logits [Kmax, B]."""
        scaled = self.scale * logits + ((1.0 - self.scale) * self._mean)[:, None]
        return self.effects.hazard(slots, None, scaled)

    def learn_correction(
        self,
        logits: FloatArray,
        hazard: FloatArray,
        slots: IntArray,
        verified: IntArray,
        accepted: IntArray,
        imputed: tuple[FloatArray, FloatArray] | None = None,
    ) -> None:
        """Learn from a step.

        Args:
            logits: [Kmax, B] logits of the head; nan where unknown.
            hazard: [Kmax, B] predicted hazards.
            slots: [B] request slots.
            verified: [B] verified drafts.
            accepted: [B] accepted drafts.
            imputed: [Kmax, B] estimated residuals of unverified drafts, and their information.
        """
        step = Observed.of(len(self._mean), verified, accepted)
        residual, information = step.residual(hazard), step.information(hazard)
        if imputed is not None:
            residual, information = residual + imputed[0], information + imputed[1]
            self.effects.impute(*imputed, slots)
        self._learn_scale(np.where(np.isnan(logits), 0.0, logits), residual, information)
        self.effects.learn_outcomes(hazard, slots, verified, accepted)

    def _learn_scale(
        self, logits: FloatArray, residual: FloatArray, information: FloatArray
    ) -> None:
        self._weight = np.minimum(self._weight, _EVIDENCE_LIMIT) + information.sum(axis=1)
        off = (information * (logits - self._mean[:, None])).sum(axis=1)
        self._mean = self._mean + off / np.maximum(self._weight, 1.0)
        deviation = logits - self._mean[:, None]
        self._evidence = min(self._evidence, _EVIDENCE_LIMIT)
        self._evidence += float((information * deviation * deviation).sum())
        scale = self.scale + float((residual * deviation).sum()) / self._evidence
        self.scale = min(max(scale, 0.0), _LARGEST_SCALE)
