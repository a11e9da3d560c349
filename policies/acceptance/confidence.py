"""The drafter's confidence as evidence for acceptance: the term w_j z_ij of the hazard's logit.

x_ij is the logit of the drafter's maximum probability at position j, and z_ij = x_ij minus its
running mean at that position. w_j >= 0 is learned online from the residuals y - h of the positions
that were observed, with capped evidence, and drawn towards the w that all positions show together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.kernels import INTS, kernel
from adaptive_spec.step import FloatArray, IntArray

_LEAST, _MOST = 1e-4, 1.0 - 1e-4
"""Bounds of a probability whose logit is taken."""
_MEMORY = 5000.0
"""Observations after which the running mean forgets."""
_EVIDENCE_LIMIT = 1000.0
"""Fisher information at which the memory of a weight is capped."""
_PRIOR_EVIDENCE = 4.0
"""Fisher information of w = 0; holds w until the signal has shown something."""
_POOLING = 20.0
"""Fisher information by which the w of all positions counts at each."""
_LARGEST_WEIGHT = 4.0
"""Bound of w_j."""
_LARGEST_SAVED = 1e9
"""Bound of the numbers of a saved state."""
_LEAST_OBSERVED = 200
"""Drafts with a signal and an outcome before the signal is used."""


def _signal_loop(confidence: FloatArray, mean: FloatArray) -> FloatArray:
    batch, kmax = confidence.shape
    signal = np.empty((kmax, batch), np.float64)
    for j in range(kmax):
        for i in range(batch):
            # Comparisons in this order keep a nan.
            p = confidence[i, j]
            p = _LEAST if p < _LEAST else p
            p = _MOST if p > _MOST else p
            signal[j, i] = math.log(p / (1.0 - p)) - mean[j]
    return signal


@kernel("float64[:, ::1](Array(float64, 2, 'A', True), float64[::1])", _signal_loop)
def signal_of(confidence: FloatArray, mean: FloatArray) -> FloatArray:
    """Return z [Kmax, B] for maximum probabilities [B, Kmax] and the means of x [Kmax]."""
    return np.ascontiguousarray(log_odds(confidence.T) - mean[: confidence.shape[1], None])


def _see_loop(signal: FloatArray, mean: FloatArray, count: FloatArray) -> None:
    for j in range(len(signal)):
        total = 0.0
        for z in signal[j]:
            if z == z:
                total += z
                count[j] += 1.0
        count[j] = min(count[j], _MEMORY)
        mean[j] += total / max(count[j], 1.0)


@kernel("void(float64[:, :], float64[::1], float64[::1])", _see_loop)
def see(signal: FloatArray, mean: FloatArray, count: FloatArray) -> None:
    """Move the means of x [Kmax], of so many observations [Kmax], by a step's z [Kmax, B]."""
    known = ~np.isnan(signal)
    total = np.where(known, signal, 0.0).sum(axis=1)
    count[:] = np.minimum(count + np.count_nonzero(known, axis=1), _MEMORY)
    mean += total / np.maximum(count, 1.0)


def _learn_weight_loop(
    signal: FloatArray,
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    own: FloatArray,
    evidence: FloatArray,
) -> int:
    observed = 0
    for j in range(len(signal)):
        shown = 0.0
        slope = 0.0
        for i in range(len(verified)):
            z = signal[j, i]
            if j < min(accepted[i] + 1, verified[i]) and z == z:
                h = hazard[j, i]
                observed += 1
                shown += z * z * (h * (1.0 - h))
                slope += z * ((1.0 if j < accepted[i] else 0.0) - h)
        evidence[j] = min(evidence[j], _EVIDENCE_LIMIT) + shown
        moved = own[j] + slope / (evidence[j] + _PRIOR_EVIDENCE)
        own[j] = min(max(moved, 0.0), _LARGEST_WEIGHT)
    return observed


@kernel(
    f"int64(float64[:, :], float64[:, :], {INTS}, {INTS}, float64[::1], float64[::1])",
    _learn_weight_loop,
)
def learn_weight(
    signal: FloatArray,
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    own: FloatArray,
    evidence: FloatArray,
) -> int:
    """Move the weights [Kmax] and the evidence [Kmax] behind them, in place.

    Args:
        signal: [Kmax, B] z.
        hazard: [Kmax, B] predicted with it.
        verified: [B]
        accepted: [B]
        own: [Kmax] weight of each position alone.
        evidence: [Kmax] Fisher information.

    Returns the number of drafts with a signal and an outcome.
    """
    position = np.arange(len(signal))[:, None]
    seen = (position < np.minimum(accepted + 1, verified)) & ~np.isnan(signal)
    known = np.where(seen, signal, 0.0)
    shown = (known * known * (hazard * (1.0 - hazard))).sum(axis=1)
    evidence[:] = np.minimum(evidence, _EVIDENCE_LIMIT) + shown
    slope = (known * ((position < accepted) - hazard)).sum(axis=1)
    moved = own + slope / (evidence + _PRIOR_EVIDENCE)
    own[:] = np.minimum(np.maximum(moved, 0.0), _LARGEST_WEIGHT)
    return int(np.count_nonzero(seen))


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
        """Whether enough drafts were observed, and confident ones were accepted more often."""
        return self.observed >= _LEAST_OBSERVED and bool(self.weight.any())

    @property
    def mean(self) -> FloatArray:
        """[Kmax] running mean of x."""
        return self._mean

    def signal(self, confidence: FloatArray) -> FloatArray:
        """Return z [Kmax, B] for maximum probabilities [B, Kmax]; nan where they are unknown."""
        return signal_of(confidence, self._mean)

    def see(self, signal: FloatArray) -> None:
        """Take up the signal z [Kmax, B] of one step's drafts, accepted or not."""
        see(signal, self._mean, self._count)

    def logit(self, signal: FloatArray) -> FloatArray:
        """Return w_j z_ij [Kmax, B]; nan where z is."""
        result: FloatArray = self.weight[:, None] * signal
        return result

    def learn_weights(
        self, signal: FloatArray, hazard: FloatArray, verified: IntArray, accepted: IntArray
    ) -> None:
        """Take up z [Kmax, B] of one step's drafts, their hazards given it, and outcomes [B]."""
        observed = learn_weight(signal, hazard, verified, accepted, self._own, self._evidence)
        if self.observed < _LEAST_OBSERVED:
            self.observed += observed
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
