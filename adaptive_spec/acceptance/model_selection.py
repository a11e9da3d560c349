"""Whether one prediction of acceptance is better than another, by the log losses of both.

A signal that goes along with acceptance is not yet one that helps: what it tells may be known
already, and a model that uses it has more to get wrong. So both predictions are made of every
draft, and the difference of their losses, -log of the probability given to what happened, is kept
over the last drafts. It is what a code of the outcomes would be shorter by (Dawid 1984,
"Statistical theory: the prequential approach").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.step import BoolArray, FloatArray

_MEMORY = 2000.0
"""Drafts over which the losses are compared."""
_CERTAINTY = 3.0
"""Standard errors by which the loss must be lower."""
_LEAST_SHARE = 0.04
"""Of the other's loss that must be saved: a little less loss does not repay what acting on a
prediction costs, namely that the drafts it left out are not seen. On the records that come with the
package, sampled drafts of a good drafter save 0 and cost throughput, those of a poor one save .07
and gain, and greedy drafts save .15 and more."""


class PredictionGain:
    """Losses of a prediction and of the one it would replace."""

    def __init__(self) -> None:
        self._count = self._loss = self._saved = self._squares = 0.0

    @property
    def proven(self) -> bool:
        """The prediction is better, certainly and by enough."""
        certain = self._saved > _CERTAINTY * math.sqrt(self._squares)
        return certain and self._saved > _LEAST_SHARE * self._loss

    def see(
        self, prediction: FloatArray, replaced: FloatArray, accepted: BoolArray, seen: BoolArray
    ) -> None:
        """Take up one step's drafts, [Kmax, B] each; only those `seen` had an outcome."""
        loss = _loss(replaced, accepted, seen)
        saved = loss - _loss(prediction, accepted, seen)
        held = min(1.0, _MEMORY / max(self._count, 1.0))
        self._count = held * self._count + float(np.count_nonzero(seen))
        self._loss = held * self._loss + float(loss.sum())
        self._saved = held * self._saved + float(saved.sum())
        self._squares = held * self._squares + float((saved * saved).sum())

    def state(self) -> list[float]:
        """JSON-compatible."""
        return [self._count, self._loss, self._saved, self._squares]

    def restore(self, state: Sequence[float]) -> None:
        """Take up a saved state; raises PolicyError if it does not fit."""
        try:
            count, loss, saved, squares = (float(value) for value in state)
        except (OverflowError, TypeError, ValueError) as error:
            raise PolicyError(f"gain of a prediction does not fit: {error!r}") from error
        finite = all(math.isfinite(value) for value in (count, loss, saved, squares))
        if not finite or min(count, loss, squares) < 0.0:
            raise PolicyError(
                "gain of a prediction must be 4 finite numbers, the loss not negative"
            )
        self._count, self._loss, self._saved, self._squares = count, loss, saved, squares


def _loss(hazard: FloatArray, accepted: BoolArray, seen: BoolArray) -> FloatArray:
    given = np.where(accepted, hazard, 1.0 - hazard)
    result: FloatArray = np.where(seen, -np.log(given), 0.0)
    return result
