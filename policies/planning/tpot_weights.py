"""TPOT weights: requests that fall behind the latency they asked for count for more.

w_i = 1 + V * deficit_i, where deficit_i is the request's debt in time per output token relative
to its target (0 while it is on time).
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.step import FloatArray, IntArray, StepContext

_LARGEST_DEFICIT = 4.0


class LatencyWeights:
    """Time and tokens of the requests, kept once one of them has a TPOT target.

    Args:
        strength: V; 0 ignores targets.
    """

    def __init__(self, strength: float) -> None:
        self._strength = strength
        self._used = False
        self._began, self._tokens = floats(float("nan")), floats(0.0)

    def weights(self, context: StepContext) -> FloatArray | None:
        """Return w_i >= 1, [B]; None if all are 1."""
        slots, target = context.slots, context.tpot_target
        if self._strength <= 0.0 or not min(target.tolist(), default=np.inf) < np.inf:
            return None
        self._used = True
        began = self._began[slots]
        began = np.where(np.isnan(began), context.now, began)
        self._began[slots] = began
        per_token = (context.now - began) / np.maximum(self._tokens[slots], 1.0)
        deficit = np.where(np.isfinite(target), per_token / target - 1.0, 0.0)
        result: FloatArray = 1.0 + self._strength * np.clip(deficit, 0.0, _LARGEST_DEFICIT)
        return result

    def emitted(self, slots: IntArray, tokens: IntArray) -> None:
        """Count tokens [B] that reached these requests."""
        if self._used:
            self._tokens[slots] = self._tokens[slots] + tokens

    def forget(self, slots: IntArray) -> None:
        """Clear the rows of requests that have ended."""
        if self._used:
            self._began.reset(slots)
            self._tokens.reset(slots)
