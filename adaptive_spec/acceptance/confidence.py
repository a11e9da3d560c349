"""The drafter's confidence as evidence for acceptance: the term w_cj z_ij of the hazard's logit.

x_ij = logit of the drafter's maximum probability at position j, z_ij = x_ij less its running mean
at that position, and c the class of the request's sampling
(`adaptive_spec.acceptance.sampling_classes`): means and w are kept for greedy and sampled targets
apart. w >= 0 is learned online from the residuals y - h of the positions that were observed, with
capped evidence and drawn towards what all positions of the class show, and that towards what both
classes show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.acceptance.confidence_kernels import follow_means, pool, weigh
from adaptive_spec.acceptance.sampling_classes import CLASSES, GREEDY, Columns, columns
from adaptive_spec.errors import PolicyError
from adaptive_spec.step import FloatArray

_LEAST, _MOST = 1e-4, 1.0 - 1e-4
_MEMORY = 5000.0
"""Observations after which the running mean forgets."""
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
    """

    def __init__(self, max_draft_tokens: int) -> None:
        shape = max_draft_tokens, CLASSES
        self.weight: FloatArray = np.zeros(shape)
        self._mean: FloatArray = np.zeros(shape)
        self._count: FloatArray = np.zeros(shape)
        self._evidence: FloatArray = np.zeros(shape)
        self._own: FloatArray = np.zeros(shape)

    def signal(self, confidence: FloatArray, classes: Columns = GREEDY) -> FloatArray:
        """z [Kmax, B] from maximum probabilities [B, Kmax]; nan where they are unknown."""
        return log_odds(confidence.T) - self._mean[: confidence.shape[1], classes]

    def usual(self, classes: Columns = GREEDY) -> FloatArray:
        """What is taken off x for z: its running mean, [Kmax, B] or [Kmax, 1]."""
        return self._mean[:, classes]

    def see(self, signal: FloatArray, classes: Columns = GREEDY) -> None:
        """Take up what the drafter showed in one step, z [Kmax, B], accepted or not."""
        # A new array: a round that is being drafted keeps the means it began with.
        self._mean = self._mean.copy()
        follow_means(signal, columns(classes), self._mean, self._count, _MEMORY)

    def logit(self, signal: FloatArray, classes: Columns) -> FloatArray:
        """w_cj z_ij [Kmax, B]; nan where z is."""
        result: FloatArray = self.weight[:, classes] * signal
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
        weigh(
            signal,
            residual,
            information,
            columns(classes),
            self._own,
            self._evidence,
            _PRIOR_EVIDENCE,
            _EVIDENCE_LIMIT,
            _LARGEST_WEIGHT,
        )
        self._combine()

    def _combine(self) -> None:
        # A new array: a round that is being drafted keeps the weights it began with.
        self.weight = np.empty_like(self._own)
        pool(self._own, self._evidence, self.weight, _PRIOR_EVIDENCE, _POOLING)

    def state(self) -> dict[str, Any]:
        """JSON-compatible; what is by position and class as a row for each class."""
        return {name: getattr(self, f"_{name}").T.tolist() for name in _SAVED}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a saved state; raises PolicyError if it does not fit.

        A state of a version that did not tell classes apart counts for both.
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
        self._combine()


_SAVED = ("own", "mean", "count", "evidence")


def _numbers(state: dict[str, Any], name: str) -> FloatArray:
    try:
        return np.asarray(state[name], dtype=np.float64)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise PolicyError(f"confidence state does not fit: {error!r}") from error


def log_odds(probability: FloatArray) -> FloatArray:
    """log(p / (1 - p)), p held away from 0 and 1; nan stays nan."""
    held = np.minimum(np.maximum(probability, _LEAST), _MOST)
    result: FloatArray = np.log(held / (1.0 - held))
    return result
