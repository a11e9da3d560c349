"""Draft confidence as evidence for acceptance: the term w_cj z_ij of the hazard's logit.

x_ij = logit of the drafter's maximum probability at position j, z_ij = x_ij less its running mean
at that position, and logit h_ij = b_j + u_i + w_cj z_ij, with c the class of the request's sampling
(`adaptive_spec.sampling_classes`): means and w are kept for greedy and sampled targets apart.
w >= 0 is learned online from the residuals y - h of the positions that were observed, with capped
evidence and drawn towards what all positions of the class show, and that towards what both classes
show. Until hazards with the signal have predicted better than those of history alone
(`adaptive_spec.prediction_gain`), and again once they no longer do, the model is its history, and
w is learned on the side.

What is planned before the confidences are known needs the hazard's mean over z. For a normal z of
variance v_cj that is close to logistic(kappa_cj (b_j + u_i)), with kappa = 1 / sqrt(1 + pi w^2 v /
8) (MacKay 1992, "The evidence framework applied to classification networks").
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.prediction_gain import PredictionGain
from adaptive_spec.sampling_classes import CLASSES, GREEDY, Columns, by_class
from adaptive_spec.values import BoolArray, FloatArray

_LEAST, _MOST = 1e-4, 1.0 - 1e-4
_MEMORY = 5000.0
"""Observations after which the running mean and variance forget."""
_EVIDENCE_LIMIT = 1000.0
_PRIOR_EVIDENCE = 4.0
"""Of w = 0, in Fisher information; holds w until the signal has shown something."""
_POOLING = 20.0
"""How strongly a position's w is drawn to that of its class, and a class's to that of both, in
Fisher information."""
_LARGEST_WEIGHT = 4.0
_LARGEST_SAVED = 1e9


class ConfidenceEffect:
    """w_cj, and what z_ij looks like, for every draft position and both classes.

    Attributes:
        weight: [Kmax, CLASSES] w_cj.
        attenuation: [Kmax, CLASSES] kappa_cj.
        informative: hazards with the signal have been found to be better; else it is not used.
        gain: by how much they are.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        shape = max_draft_tokens, CLASSES
        self.weight: FloatArray = np.zeros(shape)
        self.attenuation: FloatArray = np.ones(shape)
        self.informative = False
        self._mean: FloatArray = np.zeros(shape)
        self._variance: FloatArray = np.ones(shape)
        self._count: FloatArray = np.zeros(shape)
        self._evidence: FloatArray = np.zeros(shape)
        self._own: FloatArray = np.zeros(shape)
        self.gain = PredictionGain()

    def signal(self, confidence: FloatArray, classes: Columns = GREEDY) -> FloatArray:
        """z [Kmax, B] from maximum probabilities [B, Kmax]; nan where they are unknown."""
        return log_odds(confidence.T) - self._mean[: confidence.shape[1], classes]

    def see(self, signal: FloatArray, classes: Columns = GREEDY) -> None:
        """Take up what the drafter showed in one step, z [Kmax, B], accepted or not."""
        known = ~np.isnan(signal)
        count = by_class(known.astype(np.float64), classes)
        drafted = count > 0.0
        if not drafted.any():
            return
        values = np.where(known, signal, 0.0)
        divisor = np.maximum(count, 1.0)
        shift = by_class(values, classes) / divisor
        square = by_class(values * values, classes) / divisor
        self._count = np.minimum(self._count + count, _MEMORY)
        rate = np.where(drafted, count / np.maximum(self._count, 1.0), 0.0)
        self._mean = self._mean + rate * shift
        self._variance = self._variance + rate * (square - self._variance)

    def logit(self, of_history: FloatArray, signal: FloatArray, classes: Columns) -> FloatArray:
        """Logits [Kmax, B] with the signal, where `of_history` are those of the model without.

        Where the signal is unknown, of the mean over what it may be.
        """
        attenuation = self.attenuation[:, classes]
        mean = of_history * attenuation if self.informative else of_history
        given = of_history if self.informative else of_history / attenuation
        result: FloatArray = given + self.weight[:, classes] * signal
        np.copyto(result, mean, where=np.isnan(result))
        return result

    def learn(
        self,
        signal: FloatArray,
        residual: FloatArray,
        information: FloatArray,
        classes: Columns = GREEDY,
    ) -> None:
        """Take up the signal of one step's drafts, and what came of them; [Kmax, B] each.

        Args:
            signal: z.
            residual: y - h, h predicted with the signal; 0 where unseen.
            information: h (1 - h); 0 where unseen.
            classes: of the requests.
        """
        values = np.where(np.isnan(signal), 0.0, signal)
        gradient = by_class(values * residual, classes)
        held = np.minimum(self._evidence, _EVIDENCE_LIMIT)
        self._evidence = held + by_class(values * values * information, classes)
        step = gradient / (self._evidence + _PRIOR_EVIDENCE)
        self._own = np.clip(self._own + step, 0.0, _LARGEST_WEIGHT)
        self._combine()

    def judge(
        self, hazard: FloatArray, of_history: FloatArray, accepted: BoolArray, seen: BoolArray
    ) -> bool:
        """Compare hazards with and without the signal, [Kmax, B]; has `informative` changed?"""
        self.gain.see(hazard, of_history, accepted, seen)
        before, self.informative = self.informative, self.gain.proven
        return before is not self.informative

    def usual_attenuation(self) -> FloatArray:
        """kappa_j [Kmax], the mean of both classes by what each has shown."""
        evidence = self._evidence + 1e-9
        mean: FloatArray = (evidence * self.attenuation).sum(axis=1) / evidence.sum(axis=1)
        return mean

    def _combine(self) -> None:
        """What a position has shown itself, drawn towards what its class and both have shown."""
        evidence = self._evidence
        shown = (evidence * self._own).sum(axis=0)
        both = float(shown.sum()) / (float(evidence.sum()) + _PRIOR_EVIDENCE)
        pooled = (shown + _POOLING * both) / (evidence.sum(axis=0) + _POOLING)
        self.weight = (evidence * self._own + _POOLING * pooled) / (evidence + _POOLING)
        spread = math.pi / 8.0 * self.weight * self.weight * self._variance
        self.attenuation = 1.0 / np.sqrt(1.0 + spread)

    def state(self) -> dict[str, Any]:
        """JSON-compatible; what is by position and class as a row for each class."""
        arrays = {name: getattr(self, f"_{name}").T.tolist() for name in _SAVED}
        return {**arrays, "gain": self.gain.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state; raises PolicyError if it does not fit.

        A state of a version that did not tell classes apart counts for both, and in one that does
        not say how much was gained nothing is proven yet.
        """
        kmax = len(self.weight)
        for name in _SAVED:
            values = _numbers(state, name)
            if values.ndim == 1:
                values = np.tile(values, (CLASSES, 1))
            if values.shape != (CLASSES, kmax) or not np.isfinite(values).all():
                raise PolicyError(
                    f"confidence state: {name} must be {CLASSES} rows of {kmax} finite numbers"
                )
            if name != "own" and name != "mean" and values.min() < 0.0:
                raise PolicyError(f"confidence state: {name} must not be negative")
            if np.abs(values).max(initial=0.0) > _LARGEST_SAVED:
                raise PolicyError(f"confidence state: {name} is beyond {_LARGEST_SAVED:g}")
            setattr(self, f"_{name}", np.ascontiguousarray(values.T))
        if "gain" in state:
            self.gain.restore(state["gain"])
        self.informative = self.gain.proven
        self._combine()


_SAVED = ("own", "mean", "variance", "count", "evidence")


def _numbers(state: dict[str, Any], name: str) -> FloatArray:
    try:
        return np.asarray(state[name], dtype=np.float64)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise PolicyError(f"confidence state does not fit: {error!r}") from error


def log_odds(probability: FloatArray) -> FloatArray:
    """log(p / (1 - p)), p held away from 0 and 1; nan stays nan."""
    held = np.clip(probability, _LEAST, _MOST)
    result: FloatArray = np.log(held / (1.0 - held))
    return result
