"""Verified tokens as the engine runs them: padded to the next captured size."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from adaptive_spec.step import Capability, FloatArray

_CACHED_BATCHES = 1024


class Padding:
    """Padded numbers of verified tokens."""

    def __init__(self, capability: Capability) -> None:
        self._buckets = capability.token_buckets
        self._kmax = capability.max_draft_tokens
        self._of_batch: dict[int, FloatArray] = {}

    def of(self, tokens: int) -> float:
        """Return the captured size that a step with this number of tokens runs at."""
        place = bisect_left(self._buckets, tokens)
        return float(self._buckets[place] if place < len(self._buckets) else tokens)

    def of_batch(self, batch_size: int) -> FloatArray:
        """Return the captured sizes for m = 0..B * Kmax verified drafts: [B * Kmax + 1]."""
        tokens = self._of_batch.get(batch_size)
        if tokens is None:
            if len(self._of_batch) >= _CACHED_BATCHES:
                self._of_batch.clear()
            count = batch_size * (self._kmax + 1)
            tokens = np.arange(batch_size, count + 1, dtype=np.float64)
            buckets = np.array(self._buckets, dtype=np.float64)
            if buckets.size:
                place = np.searchsorted(buckets, tokens)
                inside = place < buckets.size
                tokens[inside] = buckets[place[inside]]
            self._of_batch[batch_size] = tokens
        return tokens
