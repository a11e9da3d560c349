"""Baseline: DSDE, K per request from the stability of the divergence of drafter and target.

Rule, per request and after each round, on the divergences d of the last 30 judged drafts:

    WVIR = weighted variance of the last third / weighted variance of all (weights 0.9 by age)
    SF   = exp(2 d_last / temperature) - 1, d_last the round's mean (temperature 0: undivided)
    K    = max(Kmin, ceil(Kmin + (Kmax - Kmin) (1 - SF WVIR))) if SF WVIR <= 1 else Kmin

The first 30 judged drafts set Kmax = round(most accepted * (1 + mean d / (2 max d))) and Kmin =
ceil(Kmax / 10), both within [min_drafts, the engine's Kmax]; meanwhile K doubles after full
acceptance. The rounded-up mean of the batch's K caps each K (option `cap`).

Source: arXiv 2509.01083, and `KLScheduler` and `coordinate_batch_k` in
vllm/spec_decode/dynamic_scheduler.py of samsungsds-research-paper/DSDE; where paper and code
differ, the constants are the code's. Granularity: L2, from finished rounds. An engine with one K
per batch runs the rounded-up mean.

Stand-in, a weak one: d is the Kullback-Leibler divergence of the two distributions at a draft
position, which the contract does not carry. Here d assumes a target with all its mass on one token:
-log(c) for an accepted draft and at least -log(1 - c) for a rejected one, with c the drafter's
maximum probability, or without that signal the running share of accepted drafts. Drafts after the
first rejection have no divergence here; the original counts them. Results of this baseline
therefore say little about DSDE with real divergences.

Faults kept: the signal correlates weakly with acceptance (0.13 to 0.34 in the paper); load is
ignored except for the cap; K never falls below Kmin >= 1, so speculation is never off.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.per_request import floats, integers
from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.baselines.parts.drafts import observed, per_request_plan
from adaptive_spec.step import (
    BoolArray,
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    SpecPlan,
    StepContext,
    StepOutcome,
)

WINDOW = 30
"""Judged drafts kept per request, and length of its warm-up (drafts)."""
_WEIGHT = 0.9
_SCALE = 2.0
_STEADY = 20.0
"""WVIR of equal divergences."""
_RATE = 0.01
"""Step size of the running share of accepted drafts, per step."""
_FLOOR = 1e-6


class DsdeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `dsde`."""

    min_drafts: Annotated[int, msgspec.Meta(ge=1)] = 2
    """Least Kmin, and least K during a request's warm-up."""
    cap: bool = True
    """Cap K at the batch's mean."""


class DsdePolicy(StatelessPolicy):
    """Policy of K by the variance of (a stand-in for) the divergence."""

    name: ClassVar[str] = "dsde"
    summary: ClassVar[str] = "K by the variance of the divergence, DSDE (stand-in signal)"
    Options: ClassVar[type[msgspec.Struct]] = DsdeOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="DSDE, arXiv 2509.01083; samsungsds-research-paper/DSDE "
        "vllm/spec_decode/dynamic_scheduler.py, KLScheduler",
        granularity=Level.FULL,
        faults="the contract has no divergence: -log of the drafter's probability of the outcome "
        "stands in; weak signal; ignores load; never off",
    )

    def __init__(self, options: DsdeOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options
        self._share = 0.5
        self._most = 1
        self._temperature = floats(0.0)
        self._history = floats(0.0, WINDOW)  # the latest last
        self._count = integers(0)
        self._k = integers(0)  # 0: not started
        self._first_k = 1
        self._warm = integers(0)
        self._low, self._high = integers(1), integers(1)
        self._most_accepted = integers(0)
        self._sum, self._largest = floats(0.0), floats(0.0)
        self._warm_count = integers(0)

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan each request's own K."""
        self._most = context.capability.max_draft_tokens
        self._first_k = min(max(context.engine_k, 1), self._most)
        slots = context.slots
        self._temperature[slots] = context.temperature
        k = self._k[slots]
        k = np.where(k > 0, k, self._first_k)
        mean = int(np.ceil(k.mean())) if k.size else self._first_k
        return per_request_plan(
            context, k, "by divergence", empty=self._first_k, uniform=min(mean, self._most)
        )

    def observe(self, step: FinishedStep) -> None:
        """Judge the drafts of a step and set the K of their requests."""
        outcome = step.outcome
        drafted = outcome.verified > 0
        if not drafted.any():
            return
        divergence, seen = self._divergence(outcome, step.context.confidence)
        divergence, seen = divergence[drafted], seen[drafted]
        slots = outcome.slots[drafted]
        accepted = outcome.accepted[drafted]
        self._k[slots] = np.where(self._k[slots] > 0, self._k[slots], self._first_k)
        self._remember(slots, divergence, seen)
        was_warm = self._warm[slots] > 0
        self._warm_up(slots[~was_warm], accepted[~was_warm], divergence[~was_warm], seen[~was_warm])
        warm = self._warm[slots] > 0
        if not warm.any():
            return
        judged = np.maximum(np.count_nonzero(seen, axis=1), 1)
        last = np.sum(divergence, axis=1, where=seen) / judged
        k = self._length(slots[warm], last[warm])
        if self._options.cap and was_warm.any():
            mean = int(np.ceil(np.mean(k[was_warm[warm]])))
            k = np.minimum(k, mean)
        self._k[slots[warm]] = np.minimum(k, self._most)

    def forget(self, slots: IntArray) -> None:
        """Reset these slots."""
        for array in (self._history, self._sum, self._largest, self._temperature):
            array.reset(slots)
        for counts in (self._count, self._k, self._warm, self._most_accepted, self._warm_count):
            counts.reset(slots)

    # ---------------------------------------------------------------- internals

    def _divergence(
        self, outcome: StepOutcome, shown: FloatArray | None
    ) -> tuple[FloatArray, BoolArray]:
        """Return [B, Kmax] the stand-in for the divergence, and a mask of known entries."""
        seen, taken = observed(outcome.verified, outcome.accepted, self._most)
        expected = np.full(seen.shape, self._share)
        if shown is not None:
            expected = np.where(np.isnan(shown), expected, shown)
        share = int(np.count_nonzero(taken & seen)) / max(int(np.count_nonzero(seen)), 1)
        self._share += _RATE * (share - self._share)
        given = np.where(taken, expected, 1.0 - expected)
        return -np.log(np.maximum(given, _FLOOR)), seen

    def _remember(self, slots: IntArray, divergence: FloatArray, seen: BoolArray) -> None:
        history, count = self._history[slots], self._count[slots]
        for position in range(seen.shape[1]):
            new = seen[:, position]
            if not new.any():
                break
            history[new, :-1] = history[new, 1:]
            history[new, -1] = divergence[new, position]
            count[new] = np.minimum(count[new] + 1, WINDOW)
        self._history[slots], self._count[slots] = history, count

    def _warm_up(
        self, slots: IntArray, accepted: IntArray, divergence: FloatArray, seen: BoolArray
    ) -> None:
        """Warm up: collect 30 judged drafts and double K; then set the request's bounds."""
        if not slots.size:
            return
        least = min(self._options.min_drafts, self._most)
        young = self._count[slots] < WINDOW
        k = self._k[slots[young]]
        doubled = np.minimum(2 * k, self._most)
        self._k[slots[young]] = np.where(accepted[young] >= k, doubled, np.maximum(k, least))
        collected = slots[young]
        self._most_accepted[collected] = np.maximum(self._most_accepted[collected], accepted[young])
        self._sum[collected] += np.sum(divergence[young], axis=1, where=seen[young])
        largest = np.max(divergence[young], axis=1, where=seen[young], initial=0.0)
        self._largest[collected] = np.maximum(self._largest[collected], largest)
        self._warm_count[collected] += np.count_nonzero(seen[young], axis=1)

        grown = slots[~young]
        if not grown.size:
            return
        mean = self._sum[grown] / np.maximum(self._warm_count[grown], 1)
        largest = self._largest[grown]
        ratio = mean / np.where(largest > 0.0, largest, 1.0)
        high = np.rint(self._most_accepted[grown] * (1.0 + 0.5 * ratio)).astype(np.int64)
        high = np.clip(high, least, self._most)
        low = np.clip(np.ceil(0.1 * high).astype(np.int64), least, high)
        self._high[grown], self._low[grown] = high, low
        self._warm[grown] = np.ones(len(grown), dtype=np.int64)

    def _length(self, slots: IntArray, last: FloatArray) -> IntArray:
        """Return [R] K before the cap."""
        temperature = self._temperature[slots]
        adjusted = np.where(temperature > 0.0, last / np.maximum(temperature, 1e-8), last)
        factor = np.expm1(_SCALE * np.minimum(adjusted, 300.0))
        unsteady = factor * variance_ratio(self._history[slots], self._count[slots])
        low, high = self._low[slots], self._high[slots]
        wanted = np.ceil(low + (high - low) * (1.0 - np.minimum(unsteady, 1.0)))
        return np.where(unsteady <= 1.0, np.maximum(wanted, low), low).astype(np.int64)


def variance_ratio(history: FloatArray, count: IntArray) -> FloatArray:
    """Return [R] the weighted variance of the last third over the weighted variance of all.

    Args:
        history: [R, 30] divergences, the latest last.
        count: [R] number of divergences.
    """
    age = np.arange(history.shape[1] - 1, -1, -1)
    short = _variance(history, age < np.maximum(count // 3, 1)[:, None])
    long = _variance(history, age < count[:, None])
    ratio = np.where(long < 1e-6, _STEADY, short / np.maximum(long, 1e-6))
    return np.where(count < 2, 0.0, ratio)


def _variance(history: FloatArray, inside: BoolArray) -> FloatArray:
    age = np.arange(history.shape[1] - 1, -1, -1)
    weight = np.where(inside, _WEIGHT**age, 0.0)
    total = np.maximum(weight.sum(axis=1), 1e-12)
    mean = (weight * history).sum(axis=1) / total
    variance: FloatArray = (weight * (history - mean[:, None]) ** 2).sum(axis=1) / total
    return variance
