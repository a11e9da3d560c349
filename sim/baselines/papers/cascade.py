"""Baseline: Cascade, tests of K per request that switch futile speculation off.

Rule, per request: the utility of a K is

    U(K) = (tokens per step with K) / (step time with K / step time without speculation).

A test tries K = 1, 2, ..., `trial_steps` steps each. U(1) < 1 ends the test with K = 0; otherwise K
climbs while U rises. The K with the best U, or 0 if that U is below 1, holds for `hold_steps`; then
the next test starts.

Source: arXiv 2506.20675, for mixture-of-experts targets, where verification loads more experts and
time rises with every draft. The numbers of steps are ours, because the paper's are unknown.
Granularity: L2 (per request, depth D the largest K of the batch); an engine with one K per batch is
tested as one request.

All requests of a batch share a step's time: each is charged the whole. Time without speculation is
measured for the whole batch, by `trial_steps` steps of K = 0 whenever the load (within a factor of
two) has not been timed for `baseline_period` steps; where the drafter cannot be stopped, it
includes drafting. Steps with prompts are not timed, so a server that always runs prompts stays at K
= 1.

Faults kept: tests of different requests overlap and blur each other's times; a few steps are a
small sample of acceptance; climbing stops at the first fall, though time is not convex; every
request pays for its own tests, however many came before.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.per_request import floats, integers
from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, load_bin, nearest_allowed
from adaptive_spec.step import (
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

Steps = Annotated[int, msgspec.Meta(ge=1)]

_NOT_COUNTED = -1
"""Marker in place of K: fewer drafts were made for the request than its test needs."""
_RESTING = -2
"""Marker in place of K: a step without speculation, for timing."""


class CascadeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `cascade`."""

    trial_steps: Steps = 4
    """Steps that each K of a test runs."""
    hold_steps: Steps = 64
    """Steps that the result of a test holds."""
    baseline_period: Steps = 1024
    """Steps after which time without speculation is measured again."""


class CascadePolicy(StatelessPolicy):
    """Policy that tests K per request and keeps the most useful one."""

    name: ClassVar[str] = "cascade"
    summary: ClassVar[str] = "tests K per request, off where time grows faster than tokens, Cascade"
    Options: ClassVar[type[msgspec.Struct]] = CascadeOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="Cascade, arXiv 2506.20675; lengths of its phases are ours",
        granularity=Level.FULL,
        faults="a batch's step time is charged to each request; overlapping tests; small samples; "
        "stops climbing at the first fall; every request is tested anew",
    )

    def __init__(self, options: CascadeOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options
        self._whole_batch = False
        self._most = 1
        self._depth = 0
        self._baseline: dict[int, tuple[float, int]] = {}
        """Load bin -> seconds of a step without speculation, and the step of the last sample."""
        self._resting: dict[int, list[float]] = {}
        self._k = integers(1)
        self._holding = integers(0)  # steps left; 0: in a test
        self._steps = integers(0)
        self._tokens, self._seconds = floats(0.0), floats(0.0)
        self._best_k, self._best = integers(0), floats(0.0)

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan each request's K; K = 0 for all while the baseline is timed."""
        capability, slots = context.capability, context.slots
        self._whole_batch = capability.level is Level.UNIFORM
        self._most = capability.max_draft_tokens
        rows = np.zeros(len(slots), dtype=np.int64) if self._whole_batch else slots
        k = self._k[rows]
        drafted = self._depth if capability.level is Level.FULL else self._most
        counted = np.where(k <= drafted, k, _NOT_COUNTED)
        if self._must_rest(context):
            k, counted = np.zeros_like(k), np.full_like(k, _RESTING)
        if k.size:
            self._depth = min(int(k.max()), self._most)
        if self._whole_batch:
            self._depth = nearest_allowed(self._depth, capability.uniform_values)
            k = np.full(context.batch_size, self._depth, dtype=np.int64)
        return SpecPlan(
            step=context.step,
            verify=np.minimum(k, context.draft_available),
            draft_depth=self._depth,
            mode=Mode.ON if self._depth else Mode.OFF_WARM,
            reason="testing and holding",
            notes=(counted,),
        )

    def observe(self, step: FinishedStep) -> None:
        """Time the baseline, or add the step to the running tests."""
        outcome = step.outcome
        if not step.plan.notes or not outcome.slots.size or outcome.prefill_tokens:
            return
        if not 0.0 < outcome.seconds < 60.0:
            return
        (k,) = step.plan.notes
        if k[0] == _RESTING:
            self._time_baseline(outcome)
            return
        baseline = self._baseline.get(load_bin(outcome.batch_size))
        if baseline is None:
            return
        slots = outcome.slots
        tokens: FloatArray = outcome.emitted.astype(np.float64)
        if self._whole_batch:
            slots, k, tokens = np.zeros(1, np.int64), k[:1], tokens.mean(keepdims=True)
        current = k == self._k[slots]
        self._count(slots[current], tokens[current], outcome.seconds / baseline[0])

    def forget(self, slots: IntArray) -> None:
        """Reset these slots; new requests are tested anew."""
        if self._whole_batch:
            return
        for counts in (self._k, self._holding, self._steps, self._best_k):
            counts.reset(slots)
        for sums in (self._tokens, self._seconds, self._best):
            sums.reset(slots)

    # ---------------------------------------------------------------- internals

    def _must_rest(self, context: StepContext) -> bool:
        """Return whether this step runs without speculation for timing."""
        if not context.batch_size or context.prefill_tokens:
            return False
        known = self._baseline.get(load_bin(context.batch_size))
        return known is None or context.step - known[1] >= self._options.baseline_period

    def _time_baseline(self, outcome: StepOutcome) -> None:
        load = load_bin(outcome.batch_size)
        samples = self._resting.setdefault(load, [])
        samples.append(outcome.seconds)
        if len(samples) >= self._options.trial_steps:
            self._baseline[load] = (float(np.median(samples)), outcome.step)
            samples.clear()

    def _count(self, slots: IntArray, tokens: FloatArray, slowdown: float) -> None:
        """Count one more step of these requests at their present K."""
        holding = self._holding[slots]
        self._holding[slots] = np.maximum(holding - 1, 0)
        again = slots[holding == 1]
        self._begin_trial(again, np.ones(len(again), dtype=np.int64))
        self._best_k[again], self._best[again] = np.zeros_like(again), np.zeros(len(again))

        testing = holding == 0
        slots, tokens = slots[testing], tokens[testing]
        self._steps[slots] += 1
        self._tokens[slots] += tokens
        self._seconds[slots] += slowdown
        done = slots[self._steps[slots] >= self._options.trial_steps]
        if done.size:
            self._judge(done)

    def _judge(self, slots: IntArray) -> None:
        """End a trial: climb on, or hold the best K."""
        utility = self._tokens[slots] / self._seconds[slots]
        k, best = self._k[slots], self._best[slots]
        rises = utility > best
        self._best[slots] = np.where(rises, utility, best)
        self._best_k[slots] = np.where(rises, k, self._best_k[slots])
        climbs = rises & (utility >= 1.0) & (k < self._most)
        self._begin_trial(slots[climbs], k[climbs] + 1)
        settled = slots[~climbs]
        useful = self._best[settled] >= 1.0
        self._begin_trial(settled, np.where(useful, self._best_k[settled], 0))
        self._holding[settled] = np.full(len(settled), self._options.hold_steps)

    def _begin_trial(self, slots: IntArray, k: IntArray) -> None:
        self._k[slots] = k
        self._steps.reset(slots)
        self._tokens.reset(slots)
        self._seconds.reset(slots)
