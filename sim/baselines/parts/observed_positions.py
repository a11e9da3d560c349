"""Draft positions that an outcome reveals.

A step that verified K drafts and accepted A shows positions 1..min(A + 1, K): the accepted ones and
the first rejected one.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import BoolArray, IntArray


def observed(verified: IntArray, accepted: IntArray, positions: int) -> tuple[BoolArray, BoolArray]:
    """Return [B, positions] masks of observed and of accepted positions; arguments [B]."""
    position = np.arange(positions)
    taken = position < accepted[:, None]
    seen = (position <= accepted[:, None]) & (position < verified[:, None])
    return seen, taken
