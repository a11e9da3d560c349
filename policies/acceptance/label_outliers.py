"""Requests whose drafts are unlike those of the others with the same task label.

Any client can send any label. A request whose acceptance is far from the median of the requests
with its label keeps its own effect u_i, and loses its share in what all of them have in common:
what the request has taught b_j and v_t is taken back as far as its weight falls. With d_i the
request's deviation in logits, shrunk to 0 while little is known, and m the label's median of the
d_i,

    weight = min(1, (REACH / |d_i - m|) ** 2).

So requests that are fewer than half of those running with a label cannot move the label's
hazards far, and all of them can: when every request of a label changes, the median does.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.step import FloatArray, IntArray

REACH = 1.0
"""Deviation from the median that counts fully (logits), about two standard deviations."""
_REQUEST_VARIANCE = 0.5
"""Variance of a request's deviation before anything is seen (logits squared)."""
_LEAST = 3
"""Requests with a label, below which a median says nothing."""
_OUTLIER_MEMORY = 0.98
"""Share of what a request has shown that a step with drafts leaves."""


class LabelOutliers:
    """Weights of requests by task label, and what each request has taught so far.

    Args:
        max_draft_tokens: Kmax.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self._surplus, self._information = floats(0.0), floats(0.0)
        self._weight = floats(1.0)
        self._taught = floats(0.0, max_draft_tokens)

    def correction(
        self,
        task: IntArray,
        slots: IntArray,
        surplus: FloatArray,
        information: FloatArray,
        lesson: FloatArray,
    ) -> FloatArray:
        """Return what to add to the sums of y - h of a step, [Kmax, B].

        Args:
            task: [B] number of the task label, -1 without.
            slots: [B] rows of the requests.
            surplus: [B] sum of y - h by position and label alone.
            information: [B] sum of h (1 - h), likewise.
            lesson: [Kmax, B] what the step has taught the effects of positions and labels.
        """
        kept = np.where(information > 0.0, _OUTLIER_MEMORY, 1.0)
        surplus = kept * self._surplus[slots] + surplus
        information = kept * self._information[slots] + information
        self._surplus[slots], self._information[slots] = surplus, information
        deviation = surplus / (information + 1.0 / _REQUEST_VARIANCE)
        distance = np.abs(deviation - _medians(task, deviation))
        weight = np.minimum(1.0, (REACH / np.maximum(distance, REACH)) ** 2)
        before, taught = self._weight[slots], self._taught[slots].T * kept
        self._weight[slots], self._taught[slots] = weight, (taught + lesson).T
        correction: FloatArray = (weight - before) * taught + (weight - 1.0) * lesson
        return correction

    def forget(self, slots: IntArray) -> None:
        """Clear the rows of ended requests."""
        for rows in (self._surplus, self._information, self._weight, self._taught):
            rows.reset(slots)


def _medians(task: IntArray, deviation: FloatArray) -> FloatArray:
    """[B] median of the deviations of each request's label; the request's own without enough."""
    found = deviation.copy()
    for label in set(task.tolist()) - {-1}:
        own = task == label
        if np.count_nonzero(own) >= _LEAST:
            found[own] = np.median(deviation[own])
    return found
