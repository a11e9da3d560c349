"""Baseline: SGLang's throughput-aware steps (#28045), the K with the most tokens per second.

Source: pull request sgl-project/sglang#28045, throughput_aware_policy.py and
throughput_aware_spec_params.py as proposed (source read, not in a release; an earlier form
evaluated every 10 batches). Granularity: one K per batch. Signals: batch size, accepted drafts by
position, a cost table profiled at start-up.

    score(K) = (1 + sum_{j <= K} p_j) / seconds(B, K)

p_j is the mean over the last `window_size` (20) batches of the fraction of requests that accepted
more than j - 1 drafts; all batch sizes share the windows. A position without data is extrapolated
geometrically: p_n (p_n / p_1)^(1 / (n - 1)), or p_1 itself where only p_1 is known. Every
`update_interval` batches (5), once the windows of all positions up to K are full, the candidate
with the best score replaces the present K if it wins by more than `switch_hysteresis` (10 percent).
When K falls, the windows above it are cleared.

Faults kept:

* K = 0 is not a candidate: the rule cannot switch speculation off.
* The cost table ignores context: it is profiled at 128 tokens each. The look-up takes the next
  larger profiled batch size, or the last one.
* p_j counts a request as rejected at j whatever stopped it, and weighs a batch of 1 like one of 64;
  a position without data may copy the first position's rate, which is too high.
* Positions above the present K are extrapolated, never tried, until their score wins. After a fall
  to K = 1 the copied rate is so high that K rises again: at large batches K oscillates between the
  smallest and the largest candidate.

Upstream profiles every candidate at start-up; here the table comes from the option `profile`, or
from extra steps at each new load. Candidates that the engine cannot run are left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, nearest_allowed
from adaptive_spec.sim.baselines.parts.batch_rounds import BatchRounds
from adaptive_spec.sim.baselines.parts.start_up_profile import StartUpProfile
from adaptive_spec.step import FinishedStep, IntArray, Level, SpecPlan, StepContext

_PROFILED_CONTEXT = 128

Positive = Annotated[int, msgspec.Meta(ge=1)]
Candidates = Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]
BatchSize = Annotated[int, msgspec.Meta(ge=1, le=16_384)]
"""The cost table of a batch size has a row for each of its drafts."""
BatchSizes = Annotated[tuple[BatchSize, ...], msgspec.Meta(min_length=1)]


class SGLangThroughputOptions(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Options of `sglang_throughput`."""

    profile: str | None = None
    """File with a cost profile; without one, each load is profiled when it first occurs."""
    candidates: tuple[tuple[Positive, Candidates], ...] = ((1, (1, 3, 5, 7)),)
    """Pairs ``[smallest batch size, candidate K]``, ascending."""
    initial_steps: Positive | None = None
    """First K where it is a candidate; absent: the engine's own K."""
    window_size: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 20
    update_interval: Positive = 5
    switch_hysteresis: Annotated[float, msgspec.Meta(ge=0)] = 0.1
    profiled_batch_sizes: BatchSizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    """Batch sizes of the cost table, ascending."""

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.candidates]
        if not sizes or sizes != sorted(set(sizes)):
            raise ValueError("`candidates` must ascend by batch size without repeats")
        if list(self.profiled_batch_sizes) != sorted(set(self.profiled_batch_sizes)):
            raise ValueError("`profiled_batch_sizes` must ascend without repeats")


class PositionWindows:
    """Fractions of requests that accepted each position, over the last batches."""

    def __init__(self, positions: int, size: int) -> None:
        self.windows = [deque[float](maxlen=size) for _ in range(positions)]
        self._size = size

    def record(self, verified: IntArray, accepted: IntArray, k: int) -> None:
        """Record [B] verified and accepted drafts of a batch that drafted k.

        A request near its end verifies fewer drafts; its unverified positions are not counted.
        """
        for position in range(min(k, len(self.windows))):
            reached = int(np.count_nonzero(verified > position))
            if reached:
                hits = int(np.count_nonzero(accepted > position))
                self.windows[position].append(hits / reached)

    def clear_above(self, k: int) -> None:
        """Clear the windows of the positions above k."""
        for window in self.windows[k:]:
            window.clear()

    def full_to(self, k: int) -> bool:
        """Return whether all positions up to k have a full window."""
        return all(len(window) == self._size for window in self.windows[:k])

    def expected_tokens(self, k: int) -> float | None:
        """Return 1 + the sum of p_j up to k; None without data to extrapolate from."""
        rates: list[float] = []
        for window in self.windows[:k]:
            if window:
                rates.append(sum(window) / len(window))
            elif not rates or (len(rates) > 1 and rates[0] <= 0):
                return None
            elif len(rates) == 1:
                rates.append(rates[0])
            else:
                ratio = (rates[-1] / rates[0]) ** (1.0 / (len(rates) - 1))
                rates.append(rates[-1] * ratio)
        return 1.0 + sum(rates) if rates else None


class SGLangThroughputPolicy(StatelessPolicy):
    """Policy that picks the candidate with the most expected tokens per profiled second.

    Attributes:
        windows: recent acceptance by position.
    """

    name: ClassVar[str] = "sglang_throughput"
    summary: ClassVar[str] = "the K with the most tokens per second, SGLang's throughput_aware"
    Options: ClassVar[type[msgspec.Struct]] = SGLangThroughputOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="SGLang pull request #28045, throughput_aware_spec_params.py",
        granularity=Level.UNIFORM,
        faults="no K = 0; cost table without context; rates shared by all loads",
    )

    def __init__(self, options: SGLangThroughputOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options
        self._rounds = BatchRounds()
        self._times = StartUpProfile(options.profile)
        self.windows = PositionWindows(0, options.window_size)
        self._candidates: list[list[int]] = []
        self._sizes = [size for size, _ in options.candidates]
        self._k: int | None = None
        self._batches = 0

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the present K, or every few batches the best one."""
        if not self._candidates:
            self._start(context)
        measure = self._times.unmeasured(context)
        if measure is not None:
            return self._rounds.next_round(context, measure, "profiling", measuring=True)
        batch = max(context.batch_size, 1)
        candidates = self._candidates[max(bisect_right(self._sizes, batch) - 1, 0)]
        if self._k not in candidates:
            best, _ = self._best(candidates, batch)
            self._switch(candidates[len(candidates) // 2] if best is None else best)
        if self._batches >= self._options.update_interval:
            self._batches = 0
            self._evaluate(candidates, batch)
        assert self._k is not None
        return self._rounds.next_round(context, self._k, f"throughput-aware {self._k}")

    def observe(self, step: FinishedStep) -> None:
        """Update the windows of the drafted positions, and the cost table."""
        outcome = step.outcome
        self._times.record(outcome)
        k = step.plan.memo
        if not k or self._k is None or outcome.slots.size == 0:
            return
        # Positions above the present K were just cleared, or belong to profiling.
        self.windows.record(outcome.verified, outcome.accepted, min(k, self._k))
        self._batches += k == self._k

    def _start(self, context: StepContext) -> None:
        self._times.start(context.capability)
        allowed = [k for k in context.capability.uniform_values if k > 0]
        for _, candidates in self._options.candidates:
            runnable = sorted({k for k in candidates if k in allowed})
            fallback = nearest_allowed(candidates[0], tuple(allowed)) if allowed else 0
            self._candidates.append(runnable or [fallback])
        deepest = max(max(candidates) for candidates in self._candidates)
        if len(self.windows.windows) != deepest:
            self.windows = PositionWindows(deepest, self._options.window_size)
            self._k = None
        known = {k for candidates in self._candidates for k in candidates}
        if self._k is None:
            initial = self._options.initial_steps or context.engine_k
            first = self._candidates[0]
            self._k = initial if initial in known else first[len(first) // 2]

    def _switch(self, k: int) -> None:
        if self._k is not None and k < self._k:
            self.windows.clear_above(k)
        self._k = k

    def _evaluate(self, candidates: list[int], batch: int) -> None:
        if self._k is None or not self.windows.full_to(self._k):
            return
        best, scores = self._best(candidates, batch)
        present = scores.get(self._k)
        if best is None or best == self._k:
            return
        margin = 1.0 + self._options.switch_hysteresis
        if present is None or scores[best] > present * margin:
            self._switch(best)

    def _best(self, candidates: list[int], batch: int) -> tuple[int | None, dict[int, float]]:
        """Return the candidate with the highest score, if one has a score, and all scores."""
        if not self._times.ready:
            return None, {}
        sizes = self._options.profiled_batch_sizes
        size = sizes[min(bisect_left(sizes, batch), len(sizes) - 1)]
        seconds = self._times.round_seconds(size, _PROFILED_CONTEXT * size)
        scores: dict[int, float] = {}
        for k in candidates:
            tokens = self.windows.expected_tokens(k)
            if tokens is not None:
                scores[k] = tokens / float(seconds[k])
        best = max(scores, key=lambda k: (scores[k], -k)) if scores else None
        return best, scores
