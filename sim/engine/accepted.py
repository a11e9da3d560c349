"""Looks up what a step would accept, for the requests of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.engine.decode_batch import DecodeBatch
from adaptive_spec.step import BoolArray, FloatArray, IntArray

_TAIL = 8.0
"""Tokens that share the probability which the likeliest one leaves."""


class AcceptedDrafts:
    """Acceptance data as the step path reads it.

    With phases, what is accepted changes for all requests at given times. Requests keep the
    positions of their records in `data`; other data is read at these positions, over and over, so
    that a request's stretch stays connected.

    Args:
        data: whose records requests follow.
        max_draft_tokens: Kmax.
        phases: (seconds, acceptance data from then on), ascending.

    Raises ConfigError if chains and token trees follow each other.
    """

    def __init__(
        self,
        data: AcceptanceData,
        max_draft_tokens: int,
        phases: Sequence[tuple[float, AcceptanceData]] = (),
    ) -> None:
        self.positions = len(data.accepted)
        self.is_tree = data.tree_sizes is not None
        if any((each.tree_sizes is not None) is not self.is_tree for _, each in phases):
            raise ConfigError("phases of acceptance must all be chains, or all token trees")
        every = (data, *(each for _, each in phases))
        self.has_confidence = any(each.confidence is not None for each in every)
        """The drafter's confidence is known, in some phase at least."""
        self._kmax = max_draft_tokens
        self._phases = list(phases)
        self._wraps = any(len(each.accepted) < self.positions for each in every)
        self._read(data)

    def reach(self, now: float) -> None:
        """Time has come so far: a phase may begin."""
        while self._phases and self._phases[0][0] <= now:
            self._read(self._phases.pop(0)[1])

    @property
    def next_change(self) -> float:
        """Start of the next phase, seconds; inf after the last."""
        return self._phases[0][0] if self._phases else math.inf

    def _read(self, data: AcceptanceData) -> None:
        self._length = len(data.accepted)
        self._accepted = data.accepted.astype(np.int64)
        self._proposed = None if data.proposed is None else data.proposed.astype(np.int64)
        self._tree_sizes = data.tree_sizes
        found = data.lookup
        self._right = self._copied = self._match = None
        if found is not None and found.proposed is not None and found.match is not None:
            self._right = found.right.astype(np.int64)
            self._copied = found.proposed.astype(np.int64)
            self._match = found.match.astype(np.int64)
        self._confidence: FloatArray | None = None
        if data.confidence is not None:
            self._confidence = data.confidence[:, : self._kmax].astype(np.float64)
        elif self.has_confidence:
            self._confidence = np.full((self._length, self._kmax), np.nan)

    def _place(self, positions: IntArray) -> IntArray:
        """Map positions [B] within requests to positions of the present data."""
        return positions % self._length if self._wraps else positions

    def looked_up(
        self, batch: DecodeBatch, possible: IntArray
    ) -> tuple[IntArray, IntArray] | tuple[None, None]:
        """[B] drafts copied from earlier text, at most as many as possible [B], and the matches."""
        if self._copied is None or self._match is None:
            return None, None
        place = self._place(batch.cursor)
        return np.minimum(self._copied[place], possible), self._match[place]

    def agreed(self, batch: DecodeBatch, emitted: IntArray | None) -> IntArray | None:
        """[B] leading copied drafts that are among the next tokens, so many [B]; None without any.

        With tokens to be emitted those that they show right; with drafts, those that are.
        """
        right = self.copied_at(batch.cursor)
        return None if right is None or emitted is None else np.minimum(right, emitted)

    def copied_at(self, positions: IntArray) -> IntArray | None:
        """[B] copied drafts that are right there; None where nothing is looked up."""
        return None if self._right is None else self._right[self._place(positions)]

    def count(
        self,
        batch: DecodeBatch,
        verify: IntArray,
        drafts: int,
        from_lookup: BoolArray | None = None,
    ) -> IntArray:
        """[B] accepted drafts when `verify` [B] are verified, `drafts` in all.

        Requests of `from_lookup` verify drafts that are copied from earlier text.
        """
        if not drafts:
            return np.zeros(batch.size, dtype=np.int64)
        cursor = self._place(batch.cursor)
        if from_lookup is not None and self._right is not None:
            right = np.where(from_lookup, self._right[cursor], self._accepted[cursor])
            either: IntArray = np.minimum(right, verify)
            return either
        if self._tree_sizes is None:
            accepted: IntArray = np.minimum(self._accepted.take(cursor), verify)
            return np.minimum(accepted, batch.left, out=accepted)
        fits = self._tree_sizes[cursor] <= verify[:, None]
        inside: IntArray = np.minimum(np.count_nonzero(fits, axis=1), batch.left)
        return inside

    def limit_to_proposed(self, batch: DecodeBatch, available: IntArray) -> IntArray:
        """[B] drafts at hand, where the drafter can't always propose."""
        if self._proposed is None or not batch.size:
            return available
        place = self._place(batch.cursor)
        limited: IntArray = np.minimum(available, self._proposed[place])
        return limited

    def at(self, positions: IntArray) -> IntArray:
        """[B] drafts a chain would have accepted there, however many were verified."""
        place = self._place(positions)
        accepted: IntArray = self._accepted[place]
        if self._proposed is not None:
            accepted = np.minimum(accepted, self._proposed[place])
        return accepted

    def confidence(self, batch: DecodeBatch, drafts: IntArray) -> FloatArray | None:
        """[B, Kmax] maximum draft probability of so many drafts [B] at hand, nan beyond them."""
        if self._confidence is None:
            return None
        signal = self._confidence[self._place(batch.cursor)]
        beyond = np.arange(signal.shape[1]) >= drafts[:, None]
        signal[beyond] = np.nan
        return signal


def modelled_entropy(confidence: FloatArray) -> FloatArray:
    """Entropy in nats of a distribution with this maximum and eight equal other tokens.

    Traces record the maximum; this is the entropy that goes with it for policies that use entropy.
    """
    top = np.clip(confidence, 1e-6, 1.0 - 1e-6)
    entropy: FloatArray = -top * np.log(top) - (1.0 - top) * np.log((1.0 - top) / _TAIL)
    return entropy
