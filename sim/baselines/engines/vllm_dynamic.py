"""Baseline: vLLM's dynamic speculation in its first form, accepted length over a table of times.

Source: pull requests vllm-project/vllm#32374 (early form) and #38038,
vllm/v1/spec_decode/dynamic/manager.py (source read; the merged form is a plain table by batch size,
`batch_table`). Granularity: one K per batch. Signals: batch size, accepted drafts by position, a
table of inter-token latencies measured beforehand.

    K = the smallest k with the highest (1 + sum_{j <= k} r_j) / ITL(B, k)

r_j are unconditional rates: requests and steps that accepted draft j over those that drafted it,
since the start of the server. After `warmup_steps` (10) steps they replace the configured rates.
ITL is interpolated linearly in B, then in k.

Faults kept:

* r_j is biased as soon as K varies: deeper positions are drafted only in better times, and a
  position that is no longer drafted keeps its rate for ever. A position never drafted has rate 0.
* Counts never fade, so after an hour the rule trusts a failed drafter for another hour.
* The table ignores context length and is flat beyond its last batch size.

The table is the option `itl_ms`, or is read from a cost profile at the batch sizes and K of
upstream's script and at `profiled_context` tokens per request. The profile is the option `profile`,
or comes from extra steps at each new load.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.baselines.parts.batch_rounds import BatchRounds
from adaptive_spec.sim.baselines.parts.start_up_profile import StartUpProfile
from adaptive_spec.step import FinishedStep, FloatArray, IntArray, Level, SpecPlan, StepContext

_MEASURED_BATCHES = (1, 4, 16, 64, 256)
_MEASURED_K = (0, 1, 3, 4, 5, 7)

Positive = Annotated[int, msgspec.Meta(ge=1)]
NonNegative = Annotated[int, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1)]


class VllmDynamicOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `vllm_dynamic`."""

    profile: str | None = None
    """File with a cost profile; without one, each load is profiled when it first occurs."""
    itl_ms: list[tuple[Positive, NonNegative, Annotated[float, msgspec.Meta(gt=0)]]] | None = None
    """Rows ``[batch size, K, milliseconds]``, measured beforehand; replaces a profile."""
    acceptance: list[Rate] | None = None
    """Rates by position during the warm-up; absent: the engine's own K runs until then."""
    warmup_steps: NonNegative = 10
    profiled_context: Positive = 512
    """Context per request for reading the table from the profile (tokens)."""

    def __post_init__(self) -> None:
        if self.itl_ms is None:
            return
        measured: dict[int, set[int]] = {}
        for batch, k, _ in self.itl_ms:
            measured.setdefault(batch, set()).add(k)
        if 1 not in measured:
            raise ValueError("`itl_ms` needs rows for batch size 1")
        for batch, ks in measured.items():
            if not {0, 1} <= ks:
                raise ValueError(f"`itl_ms` needs K = 0 and K = 1 for batch size {batch}")


class VllmDynamicPolicy(StatelessPolicy):
    """Policy that maximises accepted length over inter-token latency.

    Attributes:
        drafted: drafts by position.
    """

    name: ClassVar[str] = "vllm_dynamic"
    summary: ClassVar[str] = "accepted length over measured latency, vLLM's first dynamic form"
    Options: ClassVar[type[msgspec.Struct]] = VllmDynamicOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="vLLM pull requests #32374, #38038: v1/spec_decode/dynamic/manager.py",
        granularity=Level.UNIFORM,
        faults="cumulative unconditional rates; no context in the table; nothing learned at K = 0",
    )

    def __init__(self, options: VllmDynamicOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options
        self._rounds = BatchRounds()
        self._times = StartUpProfile(options.profile)
        self._table: dict[int, tuple[FloatArray, FloatArray]] = {}
        self.drafted: IntArray = np.zeros(0, dtype=np.int64)
        self._accepted: IntArray = np.zeros(0, dtype=np.int64)
        self._steps = 0
        measured: dict[int, list[tuple[int, float]]] = {}
        for size, k, ms in options.itl_ms or ():
            measured.setdefault(size, []).append((k, ms))
        for batch, rows in sorted(measured.items()):
            rows.sort()
            columns = np.array(rows, dtype=np.float64).T
            self._table[batch] = (columns[0], columns[1])

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the best K for this batch size."""
        kmax = context.capability.max_draft_tokens
        if len(self.drafted) != kmax:
            self.drafted = np.zeros(kmax, dtype=np.int64)
            self._accepted = np.zeros(kmax, dtype=np.int64)
        if not self._table:
            self._times.start(context.capability)
            measure = self._times.unmeasured(context)
            if measure is not None:
                return self._rounds.next_round(context, measure, "profiling", measuring=True)
        self._steps += 1
        rates = self._rates()
        if rates is None or not (self._table or self._times.ready):
            return self._rounds.next_round(context, context.engine_k, "warm-up")
        latency = self._latency(max(context.batch_size, 1), kmax)
        lengths = np.concatenate(([1.0], 1.0 + np.cumsum(rates)))
        allowed = np.array(context.capability.uniform_values)
        k = int(allowed[np.argmax((lengths / latency)[allowed])])
        return self._rounds.next_round(context, k, f"length {lengths[k]:.2f} at K = {k}")

    def observe(self, step: FinishedStep) -> None:
        """Count drafts and accepted drafts by position."""
        outcome = step.outcome
        self._times.record(outcome)
        positions = np.arange(len(self.drafted))
        self.drafted += np.count_nonzero(outcome.verified[:, None] > positions, axis=0)
        self._accepted += np.count_nonzero(outcome.accepted[:, None] > positions, axis=0)

    def _rates(self) -> FloatArray | None:
        """Return r_j [Kmax]; None without data."""
        if self._steps > self._options.warmup_steps and self.drafted.any():
            rates: FloatArray = self._accepted / np.maximum(self.drafted, 1)
            return rates
        if self._options.acceptance is None:
            return None
        given = np.zeros(len(self.drafted))
        known = self._options.acceptance[: len(given)]
        given[: len(known)] = known
        return given

    def _latency(self, batch: int, kmax: int) -> FloatArray:
        """Return [Kmax + 1] latencies at a batch size, interpolated between measured sizes."""
        sizes = list(self._table) or list(_MEASURED_BATCHES)
        place = bisect_left(sizes, batch)
        above = sizes[min(place, len(sizes) - 1)]
        if place in (0, len(sizes)) or above == batch:
            return self._measured(above, kmax)
        below = sizes[place - 1]
        share = (batch - below) / (above - below)
        low, high = self._measured(below, kmax), self._measured(above, kmax)
        latency: FloatArray = low + share * (high - low)
        return latency

    def _measured(self, batch: int, kmax: int) -> FloatArray:
        """Return [Kmax + 1] latencies at a measured batch size."""
        if self._table:
            ks, latency = self._table[batch]
        else:
            seconds = self._times.round_seconds(batch, batch * self._options.profiled_context)
            ks = np.array(sorted({min(k, kmax) for k in (*_MEASURED_K, kmax)}))
            latency = seconds[ks]
        result: FloatArray = np.interp(np.arange(kmax + 1), ks, latency)
        return result
