"""Online correction of a fitted model: logit h = m_j + a (f_ij - m_j) + c_j + u_i.

f_ij is the model's logit and m_j its running mean at a position. c_j corrects each position
(another drafter, another kind of traffic), u_i each request, and a scales the effect of the
features: a model of varied traffic overrates chance differences where requests are alike. All are
learned online from the residuals y - h with discounting: the evidence behind c_j and a is capped,
the evidence behind u_i fades with each observed step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.per_request import floats
from adaptive_spec.step import FloatArray, IntArray

HAZARD_FLOOR, HAZARD_CEILING = 0.01, 0.995
_LEAST_INFORMATION = 0.02
_SCALE_RANGE = (0.0, 1.5)
_LARGEST_EFFECT = 8.0


class RunningAverage:
    """Running average hazard of each position, initialised from the model.

    A request's history measures its distance from the *current* traffic. Measured against an
    average of other traffic, all requests with verified drafts would look good and all requests
    that wait for their first draft bad; the latter would wait for ever.

    Args:
        average: [P] average hazards of the model.
        first_evidence: weight of the model's average (drafts).
        evidence_limit: most remembered drafts.
    """

    def __init__(
        self, average: FloatArray, *, first_evidence: float, evidence_limit: float = 2000.0
    ) -> None:
        self.hazards: FloatArray = average.copy()
        self._seen: FloatArray = np.full(len(average), first_evidence)
        self._limit = evidence_limit

    def learn(self, labels: FloatArray, weights: FloatArray) -> None:
        """Learn from a step; arguments [Kmax, B] as in `Correction.learn`."""
        deepest = min(len(labels), len(self.hazards))
        seen = weights[:deepest].sum(axis=1)
        accepted = (labels[:deepest] * weights[:deepest]).sum(axis=1)
        self._seen[:deepest] = np.minimum(self._seen[:deepest], self._limit) + seen
        error = accepted - seen * self.hazards[:deepest]
        self.hazards = self.hazards.copy()
        self.hazards[:deepest] += error / self._seen[:deepest]
        np.clip(self.hazards, HAZARD_FLOOR, HAZARD_CEILING, out=self.hazards)

    def state(self) -> dict[str, Any]:
        """Return a JSON-compatible state."""
        return {"hazards": self.hazards.tolist(), "seen": self._seen.tolist()}

    def restore(self, state: Any) -> None:
        """Load a saved state. Raises PolicyError if the state does not fit."""
        try:
            hazards = np.asarray(state["hazards"], dtype=np.float64)
            seen = np.asarray(state["seen"], dtype=np.float64)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PolicyError(f"regression state: average does not fit: {error!r}") from error
        if not hazards.shape == seen.shape == self.hazards.shape:
            raise PolicyError("regression state: average is of another model")
        if not ((hazards > 0) & (hazards < 1) & np.isfinite(seen) & (seen > 0)).all():
            raise PolicyError("regression state: average has values out of range")
        self.hazards, self._seen = hazards, seen


class Correction:
    """Corrections c_j, u_i and a of one head.

    Args:
        max_draft_tokens: Kmax.
        request_variance: prior variance of u_i (logits^2).
        discount: discount of a request's evidence per step that verified its drafts.
        first_evidence: weight of the model (Fisher information).
        evidence_limit: largest evidence of a position; a higher limit adapts more slowly.
    """

    def __init__(
        self,
        max_draft_tokens: int,
        *,
        request_variance: float,
        discount: float,
        first_evidence: float,
        evidence_limit: float = 400.0,
    ) -> None:
        self._variance = request_variance
        self._discount = discount
        self._limit = evidence_limit
        self.position: FloatArray = np.zeros(max_draft_tokens)
        self._evidence: FloatArray = np.full(max_draft_tokens, first_evidence)
        self.scale = 1.0
        """a, scale of the features' effect."""
        self._scale_evidence = first_evidence
        self._mean: FloatArray = np.zeros(max_draft_tokens)
        self._mean_weight: FloatArray = np.zeros(max_draft_tokens)
        self.observations: IntArray = np.zeros(max_draft_tokens, dtype=np.int64)
        """Number of observations of each position."""
        self._effect, self._information = floats(0.0), floats(0.0)

    def hazard(self, logits: FloatArray, slots: IntArray) -> FloatArray:
        """Return [Kmax, B] hazards for the model's logits [Kmax, B]."""
        hazard: FloatArray = self.scale * logits
        hazard += (self.position + (1.0 - self.scale) * self._mean)[:, None]
        hazard += self._effect[slots]
        np.negative(hazard, out=hazard)
        np.exp(hazard, out=hazard)
        hazard += 1.0
        np.reciprocal(hazard, out=hazard)
        np.maximum(hazard, HAZARD_FLOOR, out=hazard)
        np.minimum(hazard, HAZARD_CEILING, out=hazard)
        return hazard

    def learn(
        self, logits: FloatArray, slots: IntArray, labels: FloatArray, weights: FloatArray
    ) -> None:
        """Learn from a step.

        Args:
            logits: [Kmax, B] logits of the model.
            slots: [B] request slots.
            labels: [Kmax, B] 1 accepted, 0 rejected, or an expectation in between.
            weights: [Kmax, B] weight of each label; 0 where unknown.
        """
        if slots.size == 0:
            return
        hazard = self.hazard(logits, slots)
        residual = weights * (labels - hazard)
        information = weights * np.maximum(hazard * (1.0 - hazard), _LEAST_INFORMATION)
        self.observations += np.count_nonzero(weights >= 1.0, axis=1)
        touched = weights[0] > 0.0
        seen = self._information[slots] * self._discount + information.sum(axis=0)
        effect = self._effect[slots] + residual.sum(axis=0) / (1.0 / self._variance + seen)
        # Discounted evidence no longer supports the whole effect: it shrinks towards 0.
        effect *= 1.0 - 0.5 * (1.0 - self._discount) / (1.0 + self._variance * seen)
        touched_slots = slots[touched]
        self._effect[touched_slots] = effect[touched]
        self._information[touched_slots] = seen[touched]
        # One update per step for the whole batch: sequential updates diverge at large batches.
        self._evidence = np.minimum(self._evidence, self._limit) + information.sum(axis=1)
        self.position = self.position + residual.sum(axis=1) / self._evidence
        np.clip(self.position, -_LARGEST_EFFECT, _LARGEST_EFFECT, out=self.position)
        self._learn_scale(logits, weights, residual, information)

    def _learn_scale(
        self, logits: FloatArray, weights: FloatArray, residual: FloatArray, information: FloatArray
    ) -> None:
        counts = weights.sum(axis=1)
        self._mean_weight = np.minimum(self._mean_weight, self._limit) + counts
        off = (weights * (logits - self._mean[:, None])).sum(axis=1)
        self._mean = self._mean + off / np.maximum(self._mean_weight, 1.0)
        deviation = logits - self._mean[:, None]
        self._scale_evidence = min(self._scale_evidence, self._limit) + float(
            (information * deviation * deviation).sum()
        )
        scale = self.scale + float((residual * deviation).sum()) / self._scale_evidence
        self.scale = min(max(scale, _SCALE_RANGE[0]), _SCALE_RANGE[1])

    def forget(self, slots: IntArray) -> None:
        """Reset the request effects of these slots."""
        self._effect.reset(slots)
        self._information.reset(slots)

    def widen(self, evidence: float = 20.0) -> None:
        """Cut past evidence after a suspected change, and restart exploration."""
        self._evidence = np.minimum(self._evidence, evidence)
        self.observations[:] = 0

    def state(self) -> dict[str, Any]:
        """Return the state that outlives single requests, JSON-compatible."""
        return {
            "position": self.position.tolist(),
            "evidence": self._evidence.tolist(),
            "observations": self.observations.tolist(),
            "mean": self._mean.tolist(),
            "scale": self.scale,
        }

    def restore(self, state: Any) -> None:
        """Load a saved state. Raises PolicyError if the state does not fit."""
        try:
            mean, scale = np.asarray(state["mean"], dtype=np.float64), float(state["scale"])
            position = np.asarray(state["position"], dtype=np.float64)
            evidence = np.asarray(state["evidence"], dtype=np.float64)
            observations = np.asarray(state["observations"], dtype=np.int64)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PolicyError(f"regression state: correction does not fit: {error!r}") from error
        shape = self.position.shape
        if not position.shape == evidence.shape == observations.shape == mean.shape == shape:
            raise PolicyError(f"regression state is for Kmax {position.shape}, not {shape}")
        sound = np.isfinite([*position, *evidence, *mean, scale]).all()
        if not sound or (evidence <= 0).any() or (observations < 0).any():
            raise PolicyError("regression state: correction has values out of range")
        self.position = np.clip(position, -_LARGEST_EFFECT, _LARGEST_EFFECT)
        self._evidence, self.observations, self._mean = evidence, observations, mean
        self._mean_weight = np.full(shape, self._limit)
        self.scale = min(max(scale, _SCALE_RANGE[0]), _SCALE_RANGE[1])
