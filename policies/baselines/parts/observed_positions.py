"""Which draft positions an outcome says something about.

A step that verified K drafts and accepted A of them shows positions 1..min(A + 1, K): the accepted
ones and the first that was rejected.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import BoolArray, IntArray


def observed(verified: IntArray, accepted: IntArray, positions: int) -> tuple[BoolArray, BoolArray]:
    """[B, positions] seen at all, and accepted; arguments [B]."""
    position = np.arange(positions)
    taken = position < accepted[:, None]
    seen = (position <= accepted[:, None]) & (position < verified[:, None])
    return seen, taken
