"""Where drafts break even on this server: accepted drafts that a round of K must have, by load.

A step of B requests with K drafts each takes T(K), one without the drafter T_off. With A accepted
drafts per request and round it emits B (1 + A) tokens, so speculation pays from

    A(K) = T(K) / T_off - 1

on. With T_a = x_a'c and d = x_a / T_a - x_b / T_b the variance of ln (T_a / T_b) is d'Pd to first
order: the common level of all step times cancels. A K that was not timed at a load may take `SHARE`
more or less, besides. Accepted drafts are those of the requests of the last steps, at every load
alike; a drafter that copies text finds some for a share of them only. Prompts are left out.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from adaptive_spec.per_request import sum_of
from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.step_features import SHARE
from adaptive_spec.policies.step_times import StepTimes
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.step import Capability, FloatArray, IntArray

_MEMORY = 25.0
"""Steps looked at that acceptance is averaged over."""
_LEAST_CONTEXT, _MOST_CONTEXT = 9, 17
"""Binary logarithm of the contexts of the table: 512 to 131,072 tokens."""
_BEYOND = 2
"""Doublings of the largest batch and context seen that are predicted, too."""
MOST_VARIANCE = 4.0
"""Largest variance of a ratio's logarithm: beyond a factor of 50 to each side nothing is known."""


class LoadCell(msgspec.Struct, frozen=True, kw_only=True):
    """Speculation at a load.

    Attributes:
        batch: requests.
        context: tokens of each.
        seen: steps within a factor of two of both have run; else all is predicted.
        timed_without: steps without drafts were timed with about as many requests; else what they
            take is inferred from the others, and the bounds rest on what servers usually do.
        k: best K, 0 without speculation.
        gain: its tokens per second over no speculation, between the bounds of 95 %.
        needed: by K, accepted drafts per request and round at which it breaks even, between the
            bounds of 95 %.
    """

    batch: Annotated[int, msgspec.Meta(ge=0)]
    context: Annotated[int, msgspec.Meta(ge=0)]
    seen: bool
    timed_without: bool
    k: Annotated[int, msgspec.Meta(ge=0)]
    gain: tuple[float, float, float]
    needed: dict[int, tuple[float, float, float]]


class BreakEven(msgspec.Struct, frozen=True, kw_only=True):
    """Where drafts break even.

    Attributes:
        accepted: drafts accepted per request and round of 1, 2, ... drafts.
        now: the load of the last step.
        most: the mean load of those within a factor of two at which most requests were decoded.
        cells: other loads, by context and then by batch.
    """

    accepted: list[float]
    now: LoadCell
    most: LoadCell
    cells: list[LoadCell]


class BreakEvenTable:
    """Loads that have been seen, and how many drafts were accepted.

    Args:
        capability: of the engine.
        times: belief about step times.
    """

    def __init__(self, capability: Capability, times: StepTimes) -> None:
        self._times = times
        self._ks = [k for k in capability.uniform_values if k]
        steers, kmax = capability.steers_depth, capability.max_draft_tokens
        # Where the engine cannot leave the drafter out, "none" is K = 0 with the drafter's pass.
        none = -1 if capability.cold_off or not capability.off_pass else 0
        self._depths = [*(k if steers else kmax for k in self._ks), none]
        self._seen: dict[tuple[int, int], IntArray] = {}
        """Steps, sum of requests and sum of contexts at each load, within factors of two."""
        self._survival: FloatArray = np.zeros(kmax)
        self._copies, self._asked = not capability.off_pass, 0
        self.found = 1.0
        """Share of the requests for which the drafter finds drafts when it is asked."""
        self.drafted = False
        """The last finished step asked the drafter for drafts."""
        self._looked = 0
        self._last = 0, 0

    def planned(self, forecast: StepForecast) -> None:
        """Count a step: its load, and the drafts that its requests would have accepted."""
        context = forecast.context
        self._last = context.batch_size, sum_of(context.context_tokens) // context.batch_size
        load = load_bin(self._last[0]), _context_bin(self._last[1])
        self._seen.setdefault(load, np.zeros(3, dtype=np.int64))[:] += 1, *self._last
        self._looked += 1
        share = max(1.0 / self._looked, 1.0 / _MEMORY)
        self._survival += share * (forecast.survival.mean(axis=1) - self._survival)
        if self._copies and self.drafted:
            self._asked += 1
            share = max(1.0 / self._asked, 1.0 / _MEMORY)
            self.found += share * (float((context.draft_available > 0).mean()) - self.found)

    def snapshot(self) -> BreakEven | None:
        """Return the table; None before the first step."""
        if not self._looked or not self._ks:
            return None
        most_batch = max(batch for batch, _ in self._seen) + _BEYOND
        most_context = max(context for _, context in self._seen) + _BEYOND
        contexts = range(_LEAST_CONTEXT, min(most_context, _MOST_CONTEXT) + 1)
        table = [(1 << batch, 1 << each) for each in contexts for batch in range(most_batch + 1)]
        steps, *sums = max((each.tolist() for each in self._seen.values()), key=lambda of: of[1])
        most, now, *cells = self._cells([(sums[0] // steps, sums[1] // steps), self._last, *table])
        accepted = self.found * np.cumsum(self._survival)
        return BreakEven(accepted=accepted.round(3).tolist(), now=now, most=most, cells=cells)

    def _cells(self, loads: list[tuple[int, int]]) -> list[LoadCell]:
        ks: IntArray = np.array([*self._ks, 0], dtype=np.int64)
        batches = np.array([batch for batch, _ in loads])
        drafts = (self.found * batches[:, None] * ks).astype(np.int64)
        in_all = [(batch, batch * context) for batch, context in loads]
        longer, variance = self._ratios(in_all, drafts, self._depths)
        tokens = 1.0 + self.found * np.append(0.0, np.cumsum(self._survival))[ks]
        best = np.argmax(tokens / longer, axis=1)
        with np.errstate(over="ignore"):  # without any knowledge the upper bound is infinite
            within = np.exp(np.sqrt(variance)[..., None] * (-1.96, 0.0, 1.96))  # [L, A, 3]
        needed = (within * longer[..., None] - 1.0).round(3).tolist()
        rows = np.arange(len(loads))
        gain = (within[rows, best] * (tokens[best] / longer[rows, best])[:, None]).round(3).tolist()
        return [
            LoadCell(
                batch=batch,
                context=context,
                seen=(load_bin(batch), _context_bin(context)) in self._seen,
                timed_without=not self._times.untimed(batch)[0],
                k=int(ks[best[row]]),
                gain=tuple(gain[row]),
                needed=dict(zip(self._ks, map(tuple, needed[row]), strict=False)),
            )
            for row, (batch, context) in enumerate(loads)
        ]

    def _ratios(
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
            x = times.rows(batch, times.tokens(batch, each), context, passes)
            seconds = np.maximum(x @ times.coefficients, 1e-3)
            apart = x / seconds[:, None]
            apart -= apart[-1]
            longer[place] = seconds / seconds[-1]
            variance[place] = np.einsum("ap,pq,aq->a", apart, times.covariance, apart)
            ks = np.rint(each / batch).astype(np.int64)
            variance[place] += SHARE**2 * np.where(each > 0, times.untimed(batch)[ks], 0.0)
        return longer, np.clip(variance, 0.0, MOST_VARIANCE)


def _context_bin(context: int) -> int:
    """Contexts within a factor of two count as alike; short ones all do."""
    return max(max(context - 1, 0).bit_length(), _LEAST_CONTEXT)
