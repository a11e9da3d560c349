"""Evidence about hazards by position, from verification at any K.

Position j is observed iff j <= min(A + 1, K): a step that verified K drafts and accepted A gives A
successes and, if A < K, one failure. Every K thus feeds the hazards of all shallower positions
(combinatorial cascading bandits: Kveton, Wen, Ashkan, Szepesvári, arXiv 1507.04208), and an arm
needs no samples of its own.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import FloatArray, IntArray


def seen_by_position(
    verified: IntArray, accepted: IntArray, max_draft_tokens: int
) -> tuple[FloatArray, FloatArray]:
    """Return successes and observations [Kmax] of one step, from [B] each."""
    succeeded = _at_least(accepted, max_draft_tokens)
    seen = _at_least(np.minimum(accepted + 1, verified), max_draft_tokens)
    return succeeded, seen


def survival_counts(counts: IntArray, max_draft_tokens: int) -> FloatArray:
    """Return [Kmax] the number of counts [B] that reach each position."""
    return _at_least(counts, max_draft_tokens)


def _at_least(counts: IntArray, max_draft_tokens: int) -> FloatArray:
    tally = np.bincount(np.minimum(counts, max_draft_tokens), minlength=max_draft_tokens + 1)
    reach: FloatArray = np.cumsum(tally[::-1])[::-1][1:].astype(np.float64)
    return reach


class HazardCounts:
    """Discounted successes and observations of each position.

    Args:
        max_draft_tokens: Kmax.
        discount: factor on all evidence per step that verified drafts; 1 keeps all evidence.
        evidence_limit: most observations kept per position, so that a large batch also follows
            changes quickly.
    """

    def __init__(
        self, max_draft_tokens: int, *, discount: float, evidence_limit: float = 400.0
    ) -> None:
        self.succeeded: FloatArray = np.zeros(max_draft_tokens)
        self.seen: FloatArray = np.zeros(max_draft_tokens)
        self.steps: FloatArray = np.zeros(1)
        """Steps that verified drafts, discounted likewise."""
        self._discount = discount
        self._limit = evidence_limit

    def learn(self, verified: IntArray, accepted: IntArray) -> None:
        """Learn from one step's outcomes, [B] each."""
        succeeded, seen = seen_by_position(verified, accepted, len(self.seen))
        if not seen[0]:
            return
        self.succeeded *= self._discount
        self.seen *= self._discount
        self.succeeded += succeeded
        self.seen += seen
        self.steps *= self._discount
        self.steps += 1.0
        over = np.maximum(self.seen / self._limit, 1.0)
        self.succeeded /= over
        self.seen /= over

    def mean(self, prior_successes: float = 1.0, prior_failures: float = 0.5) -> FloatArray:
        """Return [Kmax] posterior means under a weak Beta prior."""
        total = self.seen + prior_successes + prior_failures
        mean: FloatArray = (self.succeeded + prior_successes) / total
        return mean


class HazardWindow:
    """Successes and observations over a sliding window of steps (arXiv 0805.3415)."""

    def __init__(self, max_draft_tokens: int, window: int) -> None:
        self.succeeded: FloatArray = np.zeros(max_draft_tokens)
        self.seen: FloatArray = np.zeros(max_draft_tokens)
        self.steps: FloatArray = np.zeros(1)
        self._ring: FloatArray = np.zeros((window, 2, max_draft_tokens))
        self._next = 0

    def learn(self, verified: IntArray, accepted: IntArray) -> None:
        """Learn from one step's outcomes, [B] each; the oldest step leaves the window."""
        succeeded, seen = seen_by_position(verified, accepted, len(self.seen))
        if not seen[0]:
            return
        oldest = self._ring[self._next]
        self.succeeded += succeeded - oldest[0]
        self.seen += seen - oldest[1]
        oldest[0], oldest[1] = succeeded, seen
        self._next = (self._next + 1) % len(self._ring)
        self.steps[0] = min(self.steps[0] + 1.0, len(self._ring))

    def remember_restored(self) -> None:
        """Put restored sums into the window as one step, which leaves after a full round."""
        self._ring[:] = 0.0
        last = self._ring[self._next - 1]
        last[0], last[1] = self.succeeded, self.seen
