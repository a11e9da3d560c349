"""Arrays as the compiled loops take them."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import IntArray


def integers(array: IntArray) -> IntArray:
    """As compiled for; a copy only if it is laid out otherwise."""
    return np.ascontiguousarray(array, dtype=np.int64)
