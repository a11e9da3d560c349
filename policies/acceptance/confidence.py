"""The drafter's confidence as evidence for acceptance: the term w_j z_ij of the hazard's logit.

x_ij is the logit of the drafter's maximum probability at position j, and z_ij = x_ij minus its
running mean at that position. w_j >= 0 is learned online from the residuals y - h of the positions
that were observed, with capped evidence, and drawn towards the w that all positions show together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.step import FloatArray

_LEAST, _MOST = 1e-4, 1.0 - 1e-4
_MEMORY = 5000.0
"""Observations after which the running mean forgets."""
_EVIDENCE_LIMIT = 1000.0
_PRIOR_EVIDENCE = 4.0
"""Fisher information of w = 0; holds w until the signal has shown something."""
_POOLING = 20.0
"""Fisher information by which the w of all positions counts at each."""
_LARGEST_WEIGHT = 4.0
_LARGEST_SAVED = 1e9
_LEAST_OBSERVED = 200
"""Drafts with a signal and an outcome before the signal is used."""


class ConfidenceEffect:
    """w_j, and the running mean of x_ij, for every draft position.

    Attributes:
        weight: [Kmax] w_j.
        observed: drafts with a signal and an outcome so far.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self.weight: FloatArray = np.zeros(max_draft_tokens)
        self.observed = 0
        self._mean: FloatArray = np.zeros(max_draft_tokens)
        self._count: FloatArray = np.zeros(max_draft_tokens)
        self._evidence: FloatArray = np.zeros(max_draft_tokens)
        self._own: FloatArray = np.zeros(max_draft_tokens)

    @property
    def informative(self) -> bool:
        """Enough drafts were observed, and surer ones were accepted more often."""
        return self.observed >= _LEAST_OBSERVED and bool(self.weight.any())

    @property
    def mean(self) -> FloatArray:
        """[Kmax] running mean of x."""
        return self._mean

    def signal(self, confidence: FloatArray) -> FloatArray:
        """Return z [Kmax, B] for maximum probabilities [B, Kmax]; nan where they are unknown."""
        return log_odds(confidence.T) - self._mean[: confidence.shape[1], None]

    def see(self, signal: FloatArray) -> None:
        """Take up the signal z [Kmax, B] of one step's drafts, accepted or not."""
        known = ~np.isnan(signal)
        total = np.where(known, signal, 0.0).sum(axis=1)
        self._count = np.minimum(self._count + np.count_nonzero(known, axis=1), _MEMORY)
        self._mean = self._mean + total / np.maximum(self._count, 1.0)

    def logit(self, signal: FloatArray) -> FloatArray:
        """Return w_j z_ij [Kmax, B]; nan where z is."""
        result: FloatArray = self.weight[:, None] * signal
        return result

    def learn(self, signal: FloatArray, residual: FloatArray, information: FloatArray) -> None:
        """Take up the signal of one step's drafts and their outcomes; [Kmax, B] each.

        Args:
            signal: z.
            residual: y - h, h predicted with the signal; 0 where unseen.
            information: h (1 - h); 0 where unseen.
        """
        if self.observed < _LEAST_OBSERVED:
            self.observed += int(np.count_nonzero((information > 0.0) & ~np.isnan(signal)))
        known = np.where(np.isnan(signal), 0.0, signal)
        shown = (known * known * information).sum(axis=1)
        self._evidence = np.minimum(self._evidence, _EVIDENCE_LIMIT) + shown
        step = (known * residual).sum(axis=1) / (self._evidence + _PRIOR_EVIDENCE)
        self._own = np.minimum(np.maximum(self._own + step, 0.0), _LARGEST_WEIGHT)
        self._combine()

    def _combine(self) -> None:
        """Draw the weight of each position towards the weight of all positions together."""
        own, evidence = self._own, self._evidence
        pooled = (evidence * own).sum() / (evidence.sum() + _PRIOR_EVIDENCE)
        self.weight = (evidence * own + _POOLING * pooled) / (evidence + _POOLING)

    def state(self) -> dict[str, Any]:
        """JSON-compatible; [Kmax] numbers each, and the number of drafts observed."""
        values = {name: getattr(self, f"_{name}").tolist() for name in _SAVED}
        return {**values, "observed": self.observed}

    def restore(self, state: Any) -> None:
        """Take up a saved state. Raises PolicyError if it does not fit."""
        kmax = len(self.weight)
        try:
            saved = {name: np.asarray(state[name], dtype=np.float64) for name in _SAVED}
            observed = int(state["observed"])
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise PolicyError(f"confidence state does not fit: {error!r}") from error
        for name, values in saved.items():
            if values.shape != (kmax,) or not np.isfinite(values).all():
                raise PolicyError(f"confidence state: {name} must be {kmax} finite numbers")
            if name in ("count", "evidence") and values.min() < 0.0:
                raise PolicyError(f"confidence state: {name} must not be negative")
            if np.abs(values).max(initial=0.0) > _LARGEST_SAVED:
                raise PolicyError(f"confidence state: {name} is beyond {_LARGEST_SAVED:g}")
            setattr(self, f"_{name}", values.copy())
        self.observed = observed
        self._combine()


_SAVED = ("own", "mean", "count", "evidence")


def log_odds(probability: FloatArray) -> FloatArray:
    """Return log(p / (1 - p)), p held away from 0 and 1; nan stays nan."""
    held = np.minimum(np.maximum(probability, _LEAST), _MOST)
    result: FloatArray = np.log(held / (1.0 - held))
    return result
