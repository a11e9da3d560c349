"""Latency weights: requests that fall behind the latency they asked for count for more.

w_i = 1 + V * deficit_i, where deficit_i is the request's debt in time per output token relative
to its target (0 while it is on time).
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray, IntArray, StepContext

_LARGEST_DEFICIT = 4.0


class LatencyWeights:
    """Tracks time and tokens of the requests that have a TPOT target."""

    def __init__(self, strength: float) -> None:
        self._strength = strength
        self._asked = False
        self._began: FloatArray = np.full(64, np.nan)
        self._tokens: FloatArray = np.zeros(64)

    def weights(self, context: StepContext) -> FloatArray | None:
        """w_i >= 1, [B]; None if all are 1."""
        if self._strength <= 0.0 or not context.tpot_target.min(initial=np.inf) < np.inf:
            return None
        self._asked = True
        slots = context.slots
        self._grow(slots)
        began = self._began[slots]
        began = np.where(np.isnan(began), context.now, began)
        self._began[slots] = began
        target = context.tpot_target
        per_token = (context.now - began) / np.maximum(self._tokens[slots], 1.0)
        deficit = np.where(np.isfinite(target), per_token / target - 1.0, 0.0)
        result: FloatArray = 1.0 + self._strength * np.clip(deficit, 0.0, _LARGEST_DEFICIT)
        return result

    def emitted(self, slots: IntArray, tokens: IntArray) -> None:
        """Tokens [B] reached these requests."""
        if self._asked:
            self._grow(slots)
            self._tokens[slots] += tokens

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        slots = slots[slots < len(self._tokens)]
        self._began[slots] = np.nan
        self._tokens[slots] = 0.0

    def _grow(self, slots: IntArray) -> None:
        if slots.size and (top := int(slots.max())) >= len(self._tokens):
            size = max(2 * len(self._tokens), top + 1)
            began, tokens = np.full(size, np.nan), np.zeros(size)
            began[: len(self._began)] = self._began
            tokens[: len(self._tokens)] = self._tokens
            self._began, self._tokens = began, tokens
