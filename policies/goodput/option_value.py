"""What a draft is worth beforehand, because it can be left out once its confidence is known.

A draft that is verified only if its survival s given the confidences reaches the price p of
verifying brings E[max(s, p)] instead of E[s] = m, both less p. The difference o = E[max(p - s, 0)]
lies between max(p - m, 0), where confidences tell nothing, and p (1 - m), where they tell
everything: s is then 0 or 1. How far up it is, by position, is learned from the drafts of recent
steps; so a request whose drafts will hardly be left out, or are all but lost, is not given what
others gain.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.kernels import kernel, sum_in_order
from adaptive_spec.step import BoolArray, FloatArray

_MEMORY = 1000.0
"""Drafts of a position over which it is learned."""
_PRIOR = 1.0
"""Of the position before, of nothing being told at the first, in tokens. Were nothing expected of
positions not drafted yet, they would never be."""


def _tell_loop(
    survival: FloatArray,
    given: FloatArray,
    known: BoolArray,
    prices: FloatArray,
    count: FloatArray,
    saved: FloatArray,
    span: FloatArray,
    memory: float,
) -> None:
    kmax, batch = survival.shape
    for j in range(kmax):
        price = prices[j]
        drafts = 0.0
        gained = 0.0
        most = 0.0
        for i in range(batch):
            if known[j, i]:
                least = max(price - survival[j, i], 0.0)
                drafts += 1.0
                gained += max(price - given[j, i], 0.0) - least
                most += max(price * (1.0 - survival[j, i]) - least, 0.0)
        held = min(1.0, memory / max(count[j], 1.0))
        count[j] = held * count[j] + drafts
        saved[j] = held * saved[j] + gained
        span[j] = held * span[j] + most


@kernel(
    "void(float64[:, :], float64[:, :], boolean[:, :], float64[:], float64[:], float64[:],"
    " float64[:], float64)",
    _tell_loop,
)
def tell(
    survival: FloatArray,
    given: FloatArray,
    known: BoolArray,
    prices: FloatArray,
    count: FloatArray,
    saved: FloatArray,
    span: FloatArray,
    memory: float,
) -> None:
    """Take up what a step's drafts were worth by being left out; see `OptionValue.learn`.

    Updates `count` (drafts), `saved` (what was gained) and `span` (what a perfect signal would
    gain), [Kmax] each, in place. `prices` is [Kmax], the other arrays are [Kmax, B].
    """
    least, more = _bounds(survival, prices)
    gained = np.where(known, np.maximum(prices[:, None] - given, 0.0) - least, 0.0)
    most = np.where(known, more, 0.0)
    held = np.minimum(1.0, memory / np.maximum(count, 1.0))
    count[:] = held * count + np.count_nonzero(known, axis=1)
    saved[:] = held * saved + sum_in_order(gained.T)
    span[:] = held * span + sum_in_order(most.T)


def _bounds(survival: FloatArray, prices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least o [Kmax, B], and how much larger it is where confidences tell everything."""
    price = prices[:, None]
    least = np.maximum(price - survival, 0.0)
    # Above a price of 1 all are left out, whatever is told.
    return least, np.maximum(price * (1.0 - survival) - least, 0.0)


class OptionValue:
    """o for every position and request.

    Attributes:
        told: how far up o is [Kmax], 0 to 1; of a position not drafted yet, as of the one before.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self._count: FloatArray = np.zeros(max_draft_tokens)
        self._saved: FloatArray = np.zeros(max_draft_tokens)
        self._span: FloatArray = np.zeros(max_draft_tokens)
        self.told: FloatArray = np.zeros(max_draft_tokens)

    def of(self, survival: FloatArray, prices: FloatArray) -> FloatArray:
        """o [Kmax, B], of drafts that survive with these probabilities m [Kmax, B].

        `prices` are those of verified drafts by position [Kmax], in tokens.
        """
        least, more = _bounds(survival, prices)
        result: FloatArray = least + self.told[:, None] * more
        return result

    def learn(
        self, survival: FloatArray, given: FloatArray, known: BoolArray, prices: FloatArray
    ) -> None:
        """Take up the drafts of a step, [Kmax, B] each.

        Args:
            survival: m, as it was without this step's confidences.
            given: s, given them.
            known: the draft was made and has a confidence.
            prices: [Kmax] of a verified draft, in tokens.
        """
        tell(survival, given, known, prices, self._count, self._saved, self._span, _MEMORY)
        before = 0.0
        for position, (low, high) in enumerate(
            zip(self._saved.tolist(), self._span.tolist(), strict=True)
        ):
            before = min(max((low + _PRIOR * before) / (high + _PRIOR), 0.0), 1.0)
            self.told[position] = before
