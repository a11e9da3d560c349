"""Peer: Cascade, tests of K per request that switch speculation off where it doesn't pay.

Rule, per request: the utility of a K is

    U(K) = (tokens per step with K) / (step time with K / step time without speculation).

A test tries K = 1, 2, ..., `trial_steps` steps each. U(1) < 1 ends it with K = 0; else it climbs
while U rises. The K with the best U, or 0 if that is below 1, holds for `hold_steps`, then the next
test begins.

Source: arXiv 2506.20675, for mixture-of-experts targets, where verifying loads more experts and
time rises with every draft. The numbers of steps are ours: the paper's are not known here.
Granularity: L2 (per request, depth D the largest K of the batch); an engine with one K per batch is
tested as if the batch were one request.

In a batch a step's time belongs to all its requests: each is charged the whole. Time without
speculation is measured for the whole batch, `trial_steps` steps of K = 0 whenever the load (within
a factor of two) has not been timed for `baseline_period` steps; where the drafter can't be told to
rest, drafting is part of it. Steps with prompts are not timed, so that a server that always has
prompts to run stays at K = 1.

Faults kept: tests of different requests overlap and blur each other's times; a few steps are a
small sample of acceptance; climbing stops at the first fall, though time is not convex; every
request pays for its own tests, however many have been made before.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.cost.coverage import load_bin
from adaptive_spec.per_request import floats, integers
from adaptive_spec.policies.baselines.parts.per_request_plan import per_request_plan
from adaptive_spec.policies.stateless import StatelessPolicy
from adaptive_spec.policy import Provenance
from adaptive_spec.step import (
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    SpecPlan,
    StepContext,
    StepOutcome,
)

Steps = Annotated[int, msgspec.Meta(ge=1)]

_NOT_COUNTED = -1
"""In place of K: less was drafted for the request than it tests."""
_RESTING = -2
"""In place of K: a step without speculation, to time it."""


class CascadeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `cascade`."""

    trial_steps: Steps = 4
    """Steps for which each K of a test runs."""
    hold_steps: Steps = 64
    """Steps for which the outcome of a test holds."""
    baseline_period: Steps = 1024
    """Steps after which time without speculation is measured anew."""


class CascadePolicy(StatelessPolicy):
    """Tests K per request and keeps the most useful one."""

    name: ClassVar[str] = "cascade"
    summary: ClassVar[str] = "tests K per request, off where time outgrows tokens, Cascade"
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
        """Each request the K it tests or holds; K = 0 for all while the baseline is timed."""
        capability, slots = context.capability, context.slots
        self._whole_batch = capability.level is Level.UNIFORM
        self._most = capability.max_draft_tokens
        rows = np.zeros(len(slots), dtype=np.int64) if self._whole_batch else slots
        k = self._k[rows]
        drafted = self._depth if capability.level is Level.FULL else self._most
        counted = np.where(k <= drafted, k, _NOT_COUNTED)
        if self._must_rest(context):
            k, counted = np.zeros_like(k), np.full_like(k, _RESTING)
        plan = per_request_plan(context, k, "testing and holding", empty=self._depth)
        self._depth = plan.draft_depth
        return msgspec.structs.replace(plan, notes=(counted,))

    def observe(self, step: FinishedStep) -> None:
        """Time the baseline, or count the step for the tests that are under way."""
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
        """Requests have ended; the next ones are tested anew."""
        if self._whole_batch:
            return
        for counts in (self._k, self._holding, self._steps, self._best_k):
            counts.reset(slots)
        for sums in (self._tokens, self._seconds, self._best):
            sums.reset(slots)

    # ---------------------------------------------------------------- internals

    def _must_rest(self, context: StepContext) -> bool:
        """Nobody speculates in this step, to time one without."""
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
        """One more step of these requests, at their present K."""
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
        """A trial is over: climb on, or hold the best."""
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
