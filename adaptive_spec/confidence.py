"""Draft confidence as evidence for acceptance: the term w_j z_ij of the hazard's logit.

x_ij = logit of the drafter's maximum probability at position j, z_ij = x_ij less its running mean
at that position, and logit h_ij = b_j + u_i + w_j z_ij. w_j >= 0 is learned online from the
residuals y - h of the positions that were observed, with capped evidence and drawn towards what
all positions show; it stays at 0 while the signal tells nothing, and the model is then its history.

What is planned before the confidences are known needs the hazard's mean over z. For a normal z of
variance v_j that is close to logistic(kappa_j (b_j + u_i)), with kappa_j = 1 / sqrt(1 + pi w_j^2
v_j / 8) (MacKay 1992, "The evidence framework applied to classification networks").
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.values import FloatArray

_LEAST, _MOST = 1e-4, 1.0 - 1e-4
_MEMORY = 5000.0
"""Observations after which the running mean and variance forget."""
_EVIDENCE_LIMIT = 1000.0
_PRIOR_EVIDENCE = 4.0
"""Of w = 0, in Fisher information; holds w until the signal has shown something."""
_POOLING = 20.0
"""How strongly a position's w is drawn to that of all positions, in Fisher information."""
_LARGEST_WEIGHT = 4.0


class ConfidenceEffect:
    """w_j, and what z_ij looks like, for every draft position.

    Attributes:
        weight: [Kmax] w_j.
        attenuation: [Kmax] kappa_j.
        informative: confidence has been found to tell something.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self.weight: FloatArray = np.zeros(max_draft_tokens)
        self.attenuation: FloatArray = np.ones(max_draft_tokens)
        self.informative = False
        self._mean: FloatArray = np.zeros(max_draft_tokens)
        self._variance: FloatArray = np.ones(max_draft_tokens)
        self._count: FloatArray = np.zeros(max_draft_tokens)
        self._evidence: FloatArray = np.zeros(max_draft_tokens)
        self._own: FloatArray = np.zeros(max_draft_tokens)

    def signal(self, confidence: FloatArray) -> FloatArray:
        """z [Kmax, B] from maximum probabilities [B, Kmax]; nan where they are unknown."""
        return log_odds(confidence.T) - self._mean[: confidence.shape[1], None]

    def see(self, signal: FloatArray) -> None:
        """Take up what the drafter showed in one step, z [Kmax, B], accepted or not."""
        known = ~np.isnan(signal)
        count = known.sum(axis=1).astype(np.float64)
        drafted = count > 0.0
        if not drafted.any():
            return
        values = np.where(known, signal, 0.0)
        divisor = np.maximum(count, 1.0)
        shift = values.sum(axis=1) / divisor
        square = (values * values).sum(axis=1) / divisor
        self._count = np.minimum(self._count + count, _MEMORY)
        rate = np.where(drafted, count / np.maximum(self._count, 1.0), 0.0)
        self._mean = self._mean + rate * shift
        self._variance = self._variance + rate * (square - self._variance)

    def learn(self, signal: FloatArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up residuals y - h and Fisher information h (1 - h), [Kmax, B], 0 where unseen."""
        values = np.where(np.isnan(signal), 0.0, signal)
        gradient = (values * residual).sum(axis=1)
        held = np.minimum(self._evidence, _EVIDENCE_LIMIT)
        self._evidence = held + (values * values * information).sum(axis=1)
        step = gradient / (self._evidence + _PRIOR_EVIDENCE)
        self._own = np.clip(self._own + step, 0.0, _LARGEST_WEIGHT)
        self._combine()

    def _combine(self) -> None:
        """What a position has shown itself, drawn towards what all have shown."""
        evidence = self._evidence
        pooled = float(evidence @ self._own) / (float(evidence.sum()) + _PRIOR_EVIDENCE)
        self.weight = (evidence * self._own + _POOLING * pooled) / (evidence + _POOLING)
        self.informative = bool((self.weight > 0.0).any())
        spread = math.pi / 8.0 * self.weight * self.weight * self._variance
        self.attenuation = 1.0 / np.sqrt(1.0 + spread)

    def state(self) -> dict[str, Any]:
        """JSON-compatible."""
        return {name: getattr(self, f"_{name}").tolist() for name in _SAVED}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state; raises PolicyError if it does not fit."""
        shape = self.weight.shape
        for name in _SAVED:
            try:
                values = np.asarray(state[name], dtype=np.float64)
            except (KeyError, OverflowError, TypeError, ValueError) as error:
                raise PolicyError(f"confidence state does not fit: {error!r}") from error
            if values.shape != shape or not np.isfinite(values).all():
                raise PolicyError(f"confidence state: {name} must be {shape[0]} finite numbers")
            setattr(self, f"_{name}", values)
        self._combine()


_SAVED = ("own", "mean", "variance", "count", "evidence")


def log_odds(probability: FloatArray) -> FloatArray:
    """log(p / (1 - p)), p held away from 0 and 1; nan stays nan."""
    held = np.clip(probability, _LEAST, _MOST)
    result: FloatArray = np.log(held / (1.0 - held))
    return result
