"""Evidence about hazards by position, from verification at any K.

Position j is observed iff j <= min(A + 1, K): a step that verified K drafts and accepted A gives A
successes and, if A < K, one failure. Every K thus feeds the hazards of all shallower positions
(combinatorial cascading bandits: Kveton, Wen, Ashkan, Szepesvári, arXiv 1507.04208), and a K needs
no samples of its own.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray, IntArray

_EVIDENCE_LIMIT = 400.0
"""Most observations kept per position, so that a large batch also follows changes quickly."""


def reaching(counts: IntArray, max_draft_tokens: int) -> FloatArray:
    """Return [Kmax] the number of counts [B] that reach each position."""
    tally = np.bincount(np.minimum(counts, max_draft_tokens), minlength=max_draft_tokens + 1)
    reach: FloatArray = np.cumsum(tally[::-1])[::-1][1:].astype(np.float64)
    return reach


class HazardCounts:
    """Discounted successes and observations of each position.

    Args:
        max_draft_tokens: Kmax.
        discount: factor on all evidence per step that verified drafts; 1 keeps all evidence.
    """

    def __init__(self, max_draft_tokens: int, *, discount: float) -> None:
        self.succeeded: FloatArray = np.zeros(max_draft_tokens)
        self.seen: FloatArray = np.zeros(max_draft_tokens)
        self.steps = 0.0
        """Steps that verified drafts, discounted likewise."""
        self._discount = discount

    def count_outcomes(self, verified: IntArray, accepted: IntArray) -> None:
        """Learn from one step's outcomes, [B] each."""
        kmax = len(self.seen)
        seen = reaching(np.minimum(accepted + 1, verified), kmax)
        if not seen[0]:
            return
        self.steps = self.steps * self._discount + 1.0
        succeeded = self.succeeded * self._discount + reaching(accepted, kmax)
        seen += self.seen * self._discount
        over = np.maximum(seen / _EVIDENCE_LIMIT, 1.0)
        self.succeeded, self.seen = succeeded / over, seen / over
