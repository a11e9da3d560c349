"""Worth of the drafter's state: the seconds that requests alive would lose without it.

OFF_COLD takes the drafter from every request alive, to its end. That costs little while the load
stays as it is, and much if it falls: those alive then decode at a load at which drafts would pay.
With n(x) the expected number of them alive after x more tokens, and g(n) the seconds that the best
K saves of a step of n requests, per token of each, they would lose

    integral of g(n(x)) dx,

were no others to come. n(x) follows from how long each has been, and from the shares of requests
that end in each class of lengths, four to a doubling, of those that reach it (the product-limit
estimate: Kaplan and Meier, Journal of the American Statistical Association 53, 1958).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from adaptive_spec.per_request import integers
from adaptive_spec.step import FloatArray, IntArray

_EDGES: FloatArray = np.concatenate(([0.0], 2.0 ** (np.arange(65) / 4.0)))
"""Lengths at which classes begin (tokens); the last class is open."""
_CLASSES = len(_EDGES)
_PRIOR = 1.0 - 0.5**0.25
"""Share of requests that end in a class of which nothing is known: half survive a doubling."""
_REMEMBERED = 512
"""Ended requests after which the older half counts half."""
_AHEAD: FloatArray = np.concatenate(([0.0], 2.0 ** (np.arange(25) / 2.0)))
"""Tokens ahead at which the requests alive are counted."""


class OutputLengths:
    """How long requests get: tokens of those alive, and lengths of those that have ended."""

    def __init__(self) -> None:
        self._tokens = integers(0)
        self._ended: FloatArray = np.zeros(_CLASSES)

    def emitted(self, slots: IntArray, tokens: IntArray) -> None:
        """Take up the tokens [B] that requests have emitted."""
        self._tokens[slots] += tokens

    def ended(self, slots: IntArray) -> None:
        """Take up that requests have ended."""
        lengths = self._tokens[slots]
        self._ended += _by_class(lengths[lengths > 0])
        self._tokens.reset(slots)
        if self._ended.sum() > _REMEMBERED:
            self._ended *= 0.5

    def alive(self, slots: IntArray, ahead: FloatArray) -> FloatArray:
        """Return how many of these requests are expected to be alive so many tokens later.

        Args:
            slots: of requests alive now.
            ahead: [T] tokens.

        Returns [T].
        """
        tokens = self._tokens[slots]
        now = _by_class(tokens)
        # Requests alive have passed the classes below their own.
        passed = np.cumsum((self._ended + now)[::-1])[::-1] - self._ended - now
        ending = (self._ended + _PRIOR) / (self._ended + passed + 1.0)
        survive = np.concatenate(([1.0], np.cumprod(1.0 - ending[:-1])))
        reached = np.interp(tokens, _EDGES, survive)
        later = np.interp(tokens + ahead[:, None], _EDGES, survive)
        alive: FloatArray = (later / np.maximum(reached, 1e-9)).sum(axis=1)
        return alive


def _by_class(lengths: IntArray) -> FloatArray:
    """Number of these lengths in each class."""
    place = np.searchsorted(_EDGES, lengths, side="right") - 1
    return np.bincount(place, minlength=_CLASSES).astype(np.float64)


class SavingForecast(Protocol):
    """The part of a step's forecast that tells what drafts save."""

    @property
    def drafted_slots(self) -> IntArray:
        """Slots of the requests that may verify drafts."""
        ...

    def saved_seconds(self, batch_sizes: list[int]) -> FloatArray:
        """Seconds that the best K >= 1 saves of a step without drafts, per token of a request."""
        ...


def stranded_seconds(forecast: SavingForecast, lengths: OutputLengths) -> float:
    """Seconds that the requests alive would lose without a drafter, were no others to come."""
    slots = forecast.drafted_slots
    if not len(slots):
        return 0.0
    alive = lengths.alive(slots, 0.5 * (_AHEAD[1:] + _AHEAD[:-1]))
    loads = [1 << n for n in range(len(slots).bit_length() + 1)]
    saved = np.interp(alive, loads, forecast.saved_seconds(loads)) * np.minimum(alive, 1.0)
    return float(np.sum(saved * np.diff(_AHEAD)))
