"""Ratios of step times for the table of `policies.planning.break_even_table`.

With T_a = x_a'c and d = x_a / T_a - x_b / T_b the variance of ln (T_a / T_b) is d'Pd to first
order: the common level of all step times cancels. A K that was not timed at a load may take `SHARE`
more or less, besides.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.two_beliefs.step_times import SHARE, StepTimes
from adaptive_spec.step import FloatArray, IntArray

MOST_VARIANCE = 4.0
"""Largest variance of a ratio's logarithm: beyond a factor of 50 to each side nothing is known."""


class BelievedRatios:
    """Durations of steps over those without drafts, by the belief about step times."""

    def __init__(self, times: StepTimes) -> None:
        self._times = times

    def ratios(
        self, loads: list[tuple[int, int]], drafts: IntArray, depths: list[int]
    ) -> tuple[FloatArray, FloatArray]:
        """Return [L, A] durations over that of the last of A choices, and variances of their logs.

        Args:
            loads: [L] requests, and context tokens of all.
            drafts: [L, A] verified.
            depths: [A] drafted; -1: without the drafter.
        """
        times, passes = self._times, np.append(self._times.passes, 0.0)[depths]
        longer, variance = np.empty(drafts.shape), np.empty(drafts.shape)
        for place, ((batch, context), each) in enumerate(zip(loads, drafts, strict=True)):
            x = times.rows(batch, each + float(batch), context, passes)
            seconds = np.maximum(x @ times.coefficients, 1e-3)
            apart = x / seconds[:, None]
            apart -= apart[-1]
            longer[place] = seconds / seconds[-1]
            variance[place] = np.einsum("ap,pq,aq->a", apart, times.covariance, apart)
            ks = np.rint(each / batch).astype(np.int64)
            variance[place] += SHARE**2 * np.where(each > 0, times.untimed(batch)[ks], 0.0)
        return longer, np.clip(variance, 0.0, MOST_VARIANCE)

    def timed_without(self, batch_size: int) -> bool:
        """Return whether a step without drafts was timed at this load."""
        return not self._times.untimed(batch_size)[0]
