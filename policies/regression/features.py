"""Features of the hazard models, computed identically offline and online.

Features of a request, one value each per step, all known before the step's drafts are made:

===============  ==================================================================
``history``      acceptance of its drafts relative to the average, in logits
``recent``       the same over its last few steps
``progress``     log2(1 + tokens it has emitted), at any K
``temperature``  sampling temperature of the target
``context``      log2(1 + tokens in its KV cache)
``load``         log2(decoding requests)
``task``         effect of its task label, in logits
===============  ==================================================================

Features of a draft position, known once the position is drafted:

===============  ==================================================================
``confidence``   logit of the maximum probability of the draft distribution
``entropy``      entropy of the draft distribution, nats
===============  ==================================================================

History is the score of a logistic model around the average hazard b_j of each position: the sum of
y - b_j over the observed drafts, divided by 1 + the sum of b_j (1 - b_j), both discounted. Feedback
is censored: a step that verified K and accepted A shows positions 1..min(A + 1, K) only. Each
position is compared with its own b_j, so requests with different K are comparable. The number of
observed drafts is no feature: it depends on the policy, and a request without speculation would
look like a new one for ever.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.per_request import floats, highest_of
from adaptive_spec.policies.acceptance.confidence import log_odds
from adaptive_spec.policies.kernels import INTS, kernel
from adaptive_spec.step import FloatArray, IntArray

REQUEST_FEATURES = ("history", "recent", "progress", "temperature", "context", "load", "task")
DRAFT_FEATURES = ("confidence", "entropy")

HISTORY_DISCOUNT = 0.98
RECENT_DISCOUNT = 0.8
_FIRST_DRAFTS, _MOST_DRAFTS = 4.0, 2000.0
"""Weight of the fitted average, and memory of the running one (drafts)."""


def _learn_history_loop(
    sums: FloatArray, slots: IntArray, verified: IntArray, accepted: IntArray, average: FloatArray
) -> None:
    for i in range(len(slots)):
        row = sums[slots[i]]
        row[4] += accepted[i] + 1
        if verified[i] <= 0:
            continue
        expected = 0.0
        information = 0.0
        for j in range(min(accepted[i] + 1, verified[i])):
            hazard = average[min(j, len(average) - 1)]
            expected += hazard
            information += hazard * (1.0 - hazard)
        row[0] = row[0] * HISTORY_DISCOUNT + (accepted[i] - expected)
        row[1] = row[1] * HISTORY_DISCOUNT + information
        row[2] = row[2] * RECENT_DISCOUNT + (accepted[i] - expected)
        row[3] = row[3] * RECENT_DISCOUNT + information


@kernel(
    f"void(float64[:, ::1], {INTS}, {INTS}, {INTS}, float64[::1])",
    _learn_history_loop,
)
def learn_history(
    sums: FloatArray, slots: IntArray, verified: IntArray, accepted: IntArray, average: FloatArray
) -> None:
    """Learn one step's outcomes, in place.

    Args:
        sums: [slots, 5] score and information of `history`, the same of `recent`, tokens emitted.
        slots: [B]
        verified: [B]
        accepted: [B]
        average: [P] average hazard of each position.
    """
    sums[slots, 4] += accepted + 1
    touched = verified > 0
    if not touched.any():
        return
    slots, verified, accepted = slots[touched], verified[touched], accepted[touched]
    position = np.arange(int(verified.max()))
    hazard = average[np.minimum(position, len(average) - 1)]
    # Sums over the observed positions, as differences of running sums.
    seen = np.minimum(accepted + 1, verified)
    expected = np.concatenate([[0.0], np.cumsum(hazard)])[seen]
    information = np.concatenate([[0.0], np.cumsum(hazard * (1.0 - hazard))])[seen]
    rows = sums[slots]
    rows[:, :2] *= HISTORY_DISCOUNT
    rows[:, 2:4] *= RECENT_DISCOUNT
    rows[:, 0:4:2] += (accepted - expected)[:, None]
    rows[:, 1:4:2] += information[:, None]
    sums[slots] = rows


class RequestHistory:
    """Running acceptance by request slot, from finished steps.

    Args:
        average: [P] average hazard of each position; deeper positions use the last value.
    """

    def __init__(self, average: FloatArray) -> None:
        self.average = average
        self._drafts: FloatArray = np.full(len(average), _FIRST_DRAFTS)
        # Columns: score and information of `history`, the same of `recent`, tokens emitted.
        self._sums = floats(0.0, 5)

    def features(self, slots: IntArray) -> FloatArray:
        """Return ``history``, ``recent`` and ``progress``: [3, B]."""
        sums = self._sums[slots].T
        result = np.empty((3, len(slots)))
        np.divide(sums[0], 1.0 + sums[1], out=result[0])
        np.divide(sums[2], 1.0 + sums[3], out=result[1])
        np.log2(1.0 + sums[4], out=result[2])
        return result

    def add_outcomes(self, slots: IntArray, verified: IntArray, accepted: IntArray) -> None:
        """Learn one step's outcomes, [B] each. Steps without drafts only count as progress."""
        if slots.size:
            rows = self._sums.reaching(highest_of(slots))
            learn_history(rows, slots, verified, accepted, self.average)

    def follow(self, labels: FloatArray, weights: FloatArray) -> None:
        """Move the average towards the current traffic; only online.

        Against an average of other traffic, all requests with verified drafts would look good and
        all that wait for their first draft bad; the latter would wait for ever.

        Args:
            labels: [Kmax, B] accepted drafts, 1, or their expectation.
            weights: [Kmax, B] weight of each draft; 0 where unknown.
        """
        used = min(len(labels), len(self.average))
        drafts = weights[:used].sum(axis=1)
        self._drafts[:used] = np.minimum(self._drafts[:used], _MOST_DRAFTS) + drafts
        error = (weights[:used] * (labels[:used] - self.average[:used, None])).sum(axis=1)
        self.average = self.average.copy()
        self.average[:used] += error / self._drafts[:used]

    def forget(self, slots: IntArray) -> None:
        """Reset the history of these slots."""
        self._sums.reset(slots)


def context_feature(tokens: FloatArray) -> FloatArray:
    """Return ``context`` of these token counts."""
    result: FloatArray = np.log2(1.0 + tokens)
    return result


def confidence_feature(max_probability: FloatArray) -> FloatArray:
    """Return ``confidence`` of maximum draft probabilities; nan stays nan."""
    return log_odds(max_probability)
