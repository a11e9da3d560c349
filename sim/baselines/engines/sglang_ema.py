"""Baseline: SGLang's adaptive steps, `--speculative-adaptive`.

Source: SGLang 0.5.23, sglang/srt/speculative/adaptive_spec_params.py (#22246, #23336).
Granularity: one K per batch. Signals: batch size and accepted drafts.

A batch counts as the next larger captured size, so that the tiers 32 and 64 begin at 31 and 61.

Every batch-size tier has its own candidates, K and moving average e of the accepted drafts per
request:

        e <- (1 - a) e + a mean_i A_i        after each batch with K > 0, a = 0.2

After `warmup_batches` (10), at every `update_interval`-th batch (5):

* at K = 0: move up to the next candidate, always;
* else move down while e <= below - 0.5 + down_hysteresis, with `below` the next lower candidate
  (threshold 0.5 + down_hysteresis where that candidate is 0);
* if K did not move down, move up while e > K - 0.5 + up_hysteresis.

`ceiling_coeff` c > 0 limits a K that does not rise to max(1, ceil(c e)).

Faults kept:

* Time, queue, KV and confidence are ignored: each tier's candidates represent the cost of its
  batches. Speculation is always off from batch 64 on, and never off below 8.
* At K = 0 every update probes, without back-off: with a drafter that is never right, about half of
  the steps draft.
* e starts at K - 1, so a new tier learns nothing from the others; an unused tier is frozen.
* A batch of 64 moves e as much as a batch of 8.

At K = 0 SGLang still runs the draft-extend pass (OFF-warm). A step that still verifies the K before
a change is not counted: upstream drafts and verifies in one step and has no such steps. Candidates
that the engine cannot run are left out.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, nearest_allowed
from adaptive_spec.sim.baselines.parts.batch_rounds import BatchRounds
from adaptive_spec.step import Capability, FinishedStep, Level, SpecPlan, StepContext

Positive = Annotated[int, msgspec.Meta(ge=1)]


class EmaTier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tier of batch sizes; upstream's names and defaults, except for `batch_size`."""

    batch_size: Positive
    """Smallest batch size of this tier."""
    candidate_steps: Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1)]
    """Candidate K."""
    ema_alpha: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.2
    update_interval: Positive = 5
    warmup_batches: Annotated[int, msgspec.Meta(ge=0)] = 10
    up_hysteresis: float = 0.0
    down_hysteresis: float = -0.25
    ceiling_coeff: Annotated[float, msgspec.Meta(ge=0)] = 0.0


def captured_sizes() -> list[int]:
    """Return the batch sizes that SGLang captures when it speculates, up to 256."""
    return [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]


def default_tiers() -> list[EmaTier]:
    """Return upstream's DEFAULT_ADAPTIVE_CONFIG."""
    return [
        EmaTier(batch_size=1, candidate_steps=[1, 3, 5, 7]),
        EmaTier(batch_size=8, candidate_steps=[0, 1, 3], down_hysteresis=0.0),
        EmaTier(batch_size=32, candidate_steps=[0, 1], down_hysteresis=0.0),
        EmaTier(batch_size=64, candidate_steps=[0], down_hysteresis=0.0),
    ]


class SGLangEmaOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `sglang_ema`."""

    tiers: list[EmaTier] = msgspec.field(default_factory=default_tiers)
    """Tiers by ascending batch size."""
    initial_steps: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """First K where it is a candidate; absent: the engine's own K."""
    graph_batch_sizes: list[Positive] = msgspec.field(default_factory=captured_sizes)
    """Captured batch sizes, ascending: a batch counts as the next larger one. Empty, as without
    CUDA graphs: exact."""

    def __post_init__(self) -> None:
        sizes = [tier.batch_size for tier in self.tiers]
        if not sizes or sizes != sorted(set(sizes)):
            raise ValueError("`tiers` must ascend by batch_size without repeats, and not be empty")
        if self.graph_batch_sizes != sorted(set(self.graph_batch_sizes)):
            raise ValueError("`graph_batch_sizes` must ascend without repeats")


class EmaSlot:
    """K of one tier and the average behind it."""

    def __init__(self, tier: EmaTier, candidates: Sequence[int], initial: int) -> None:
        self._tier = tier
        self.candidates = sorted(set(candidates))
        middle = self.candidates[len(self.candidates) // 2]
        self.k = initial if initial in self.candidates else middle
        self.ema = float(self.k - 1)
        self.batches = 0

    def record(self, mean_accepted: float) -> None:
        """Record the mean accepted drafts per request of a batch that verified this slot's K."""
        tier = self._tier
        if self.k > 0:
            self.ema = (1 - tier.ema_alpha) * self.ema + tier.ema_alpha * mean_accepted
        self.batches += 1
        counted = self.batches - tier.warmup_batches
        if counted > 0 and counted % tier.update_interval == 0:
            self._move()

    def _move(self) -> None:
        place = self.candidates.index(self.k)
        if self.k == 0:
            self.k = self.candidates[min(place + 1, len(self.candidates) - 1)]
            if self.k > 0 and self.ema < 0:
                self.ema = float(self.k - 1)
            return
        lower = self._down(place)
        place = lower if lower < place else self._up(place)
        coefficient = self._tier.ceiling_coeff
        if coefficient > 0 and self.candidates[place] <= self.k:
            ceiling = max(1, math.ceil(self.ema * coefficient))
            while place > 0 and self.candidates[place] > ceiling:
                place -= 1
        self.k = self.candidates[place]

    def _down(self, place: int) -> int:
        while place > 0:
            below = self.candidates[place - 1]
            threshold = 0.5 if below == 0 else below - 0.5
            if self.ema > threshold + self._tier.down_hysteresis:
                break
            place -= 1
        return place

    def _up(self, place: int) -> int:
        last = len(self.candidates) - 1
        hysteresis = self._tier.up_hysteresis
        while place < last and self.ema > self.candidates[place] - 0.5 + hysteresis:
            place += 1
        return place


class EmaTiers:
    """Slots of all tiers, found by batch size."""

    def __init__(self, options: SGLangEmaOptions, capability: Capability, initial: int) -> None:
        self._graphs = options.graph_batch_sizes
        self.sizes = [tier.batch_size for tier in options.tiers]
        allowed = capability.uniform_values
        self.slots: list[EmaSlot] = []
        for tier in options.tiers:
            runnable = [k for k in tier.candidate_steps if k in allowed]
            runnable = runnable or [nearest_allowed(min(tier.candidate_steps), allowed)]
            self.slots.append(EmaSlot(tier, runnable, initial))

    def slot(self, batch_size: int) -> EmaSlot:
        """Return the slot of a batch size."""
        place = bisect_left(self._graphs, batch_size)
        if place < len(self._graphs):
            batch_size = self._graphs[place]
        return self.slots[max(bisect_right(self.sizes, batch_size) - 1, 0)]


class SGLangEmaPolicy(StatelessPolicy):
    """Policy of one K per batch-size tier, moved by the average of accepted drafts.

    Attributes:
        tiers: K and average of each tier; None before the first plan.
    """

    name: ClassVar[str] = "sglang_ema"
    summary: ClassVar[str] = "K by accepted drafts within batch-size tiers, SGLang's adaptive steps"
    Options: ClassVar[type[msgspec.Struct]] = SGLangEmaOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="SGLang 0.5.23, srt/speculative/adaptive_spec_params.py",
        granularity=Level.UNIFORM,
        faults="ignores cost; always off from batch 64, never below 8; probes without back-off",
    )

    def __init__(self, options: SGLangEmaOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options
        self._rounds = BatchRounds()
        self.tiers: EmaTiers | None = None

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the K of this batch's tier."""
        tiers = self.tiers
        if tiers is None:
            initial = self._options.initial_steps
            if initial is None:
                initial = context.engine_k
            tiers = self.tiers = EmaTiers(self._options, context.capability, initial)
        slot = tiers.slot(max(context.batch_size, 1))
        return self._rounds.next_round(context, slot.k, f"{slot.ema:.2f} accepted, K = {slot.k}")

    def observe(self, step: FinishedStep) -> None:
        """Update the average of this batch's tier."""
        outcome = step.outcome
        k = step.plan.memo
        if self.tiers is None or outcome.slots.size == 0:
            return
        slot = self.tiers.slot(outcome.batch_size)
        if k == slot.k:
            slot.record(float(outcome.accepted.sum()) / outcome.slots.size)
