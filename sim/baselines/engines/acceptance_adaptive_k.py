"""Baseline: K by thresholds on acceptance rates, `AcceptanceAdaptiveK` of a vLLM fork.

Source: vllm/v1/spec_decode/dynamic/adaptive.py of a public vLLM fork (source read; not upstream).
Granularity: one K per batch. Signals: accepted drafts by position and, with `table`, batch size.

Each position has an acceptance rate over its drafts: the mean of the first `window` (256) drafts,
then a moving average with step 1 / window. All positions start enabled. A position is disabled when
its rate falls below `threshold`, and enabled again at `threshold + hysteresis` (0.05). K is the
number of leading enabled positions, at least `min_k`. K is Kmax until `window` drafts have been
judged, and at every `probe_interval`-th step (64). With a batch-size table, K is the smaller of the
two.

Faults kept:

* One threshold serves every load, drafter and GPU; step time is ignored.
* Rates are unconditional, and biased by whatever made K vary.
* A probe drafts all Kmax positions for the whole batch, however hopeless, for ever.

The fork leaves the threshold to the user; its own tests use 0.4.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.baselines.engines.batch_table import BatchTableOptions, BatchTablePolicy
from adaptive_spec.sim.baselines.parts.batch_rounds import BatchRounds
from adaptive_spec.step import FinishedStep, IntArray, Level, SpecPlan, StepContext

Positive = Annotated[int, msgspec.Meta(ge=1)]
NonNegative = Annotated[int, msgspec.Meta(ge=0)]


class AcceptanceAdaptiveKOptions(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True
):
    """Options of `acceptance_adaptive_k`; the fork's defaults, except for `threshold`."""

    threshold: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.4
    """Least acceptance rate of a position that is drafted."""
    min_k: NonNegative = 0
    window: Positive = 256
    """Length of the averages (drafts)."""
    probe_interval: NonNegative = 64
    """Steps between two steps that draft Kmax; 0 disables them."""
    hysteresis: Annotated[float, msgspec.Meta(ge=0)] = 0.05
    table: list[tuple[int, int, int]] | None = None
    """Ranges ``[from, to, K]`` of batch sizes that cap K, as in `batch_table`."""

    def __post_init__(self) -> None:
        if self.table is not None:
            BatchTableOptions(table=self.table)


class PositionRates:
    """Acceptance rates by position, and the positions they enable.

    Args:
        positions: Kmax.
        options: thresholds and window.
    """

    def __init__(self, positions: int, options: AcceptanceAdaptiveKOptions) -> None:
        self._options = options
        self.rates = [0.0] * positions
        self.counts = [0] * positions
        self.enabled = [True] * positions
        self.drafts = 0

    def record(self, verified: IntArray, accepted: IntArray) -> None:
        """Record [B] verified and accepted drafts of a step, one request after another."""
        self.drafts += int(np.count_nonzero(verified > 0))
        for position in range(len(self.rates)):
            hits = (accepted > position)[verified > position]
            if hits.size == 0:
                break
            rate, count = self.rates[position], self.counts[position]
            first = hits[: max(self._options.window - count, 0)]
            if first.size:
                rate = (rate * count + float(first.sum())) / (count + first.size)
            later = hits[first.size :]
            if later.size:
                keep = 1.0 - 1.0 / self._options.window
                weights = keep ** np.arange(later.size - 1, -1, -1)
                rate = rate * keep**later.size + (1.0 - keep) * float(weights[later].sum())
            # Rounding must not leave 0..1, the range that `restore` accepts.
            self.rates[position] = min(max(rate, 0.0), 1.0)
            self.counts[position] = count + hits.size

    def leading(self) -> int:
        """Update the enabled positions; return the number of leading enabled ones."""
        threshold = self._options.threshold
        for position, rate in enumerate(self.rates):
            if self.counts[position]:
                if self.enabled[position]:
                    self.enabled[position] = rate >= threshold
                else:
                    self.enabled[position] = rate >= threshold + self._options.hysteresis
            if not self.enabled[position]:
                return position
        return len(self.rates)


class AcceptanceAdaptiveKPolicy(StatelessPolicy):
    """Policy that drafts the positions with an acceptance rate above a threshold."""

    name: ClassVar[str] = "acceptance_adaptive_k"
    summary: ClassVar[str] = "leading positions with enough acceptance, from a vLLM fork"
    Options: ClassVar[type[msgspec.Struct]] = AcceptanceAdaptiveKOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="AcceptanceAdaptiveK of a vLLM fork, vllm/v1/spec_decode/dynamic/adaptive.py",
        granularity=Level.UNIFORM,
        faults="one threshold for every load; unconditional rates; probes without back-off",
    )

    def __init__(self, options: AcceptanceAdaptiveKOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options
        self._rounds = BatchRounds()
        self._positions = PositionRates(0, options)
        self._steps = 0
        self._cap: BatchTablePolicy | None = None
        if options.table is not None:
            self._cap = BatchTablePolicy(BatchTableOptions(table=options.table))

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the leading positions, or all positions in a probe."""
        kmax = context.capability.max_draft_tokens
        if len(self._positions.rates) != kmax:
            self._positions = PositionRates(kmax, self._options)
        self._steps += 1
        k, reason = self._choose(kmax)
        if self._cap is not None:
            k = min(k, self._cap.plan(context).draft_depth)
        return self._rounds.next_round(context, k, f"{reason}, K = {k}")

    def observe(self, step: FinishedStep) -> None:
        """Record each request's drafts."""
        outcome = step.outcome
        self._positions.record(outcome.verified, outcome.accepted)

    def _choose(self, kmax: int) -> tuple[int, str]:
        options = self._options
        if self._positions.drafts < options.window:
            return kmax, "first drafts"
        if options.probe_interval and self._steps % options.probe_interval == 0:
            return kmax, "probe"
        return min(max(self._positions.leading(), options.min_k), kmax), "accepted often enough"
