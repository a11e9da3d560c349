"""Baseline: TurboSpec (SmartSpec), goodput from one acceptance rate and profiled times.

Source: Liu et al., 2406.14066, and its code as released with TETRIS (ZhaoxuanWu/Tetris,
vllm/spec_decode/dsd.py), the form with a draft model. Granularity: one K per batch. Signals: batch
size, context, free KV, accepted drafts.

    goodput(k) = B (1 - a^(k + 1)) / (1 - a) / T(B, context, k)

a is one acceptance rate for all requests and positions, 0.7 at first; after a step with drafts a <-
0.85 a + 0.15 (drafts accepted / drafts judged, since the start of the server). K is the first local
maximum of goodput from k = 0 on, with goodput(0) times 1.1 (a bias of 10 percent towards off), and
is recomputed every 20 steps. A k is skipped if 1.1 B (mean context + k + 1) tokens exceed the KV
pool.

Faults kept:

* At K = 0 nothing is drafted, so a never changes again: at constant load, off is for ever.
* The rate is cumulative on top of the moving average: after an hour it hardly moves.
* A scan that stops at the first fall is wrong where T has steps (captured graphs, MoE).
* (1 - a^(k + 1)) / (1 - a) assumes that all positions of all requests are alike.

Differences from upstream: its sampler also judges drafts after a rejected one, which engines do not
report; here a draft is judged if all earlier drafts were accepted. Times come from the option
`profile`, or from extra steps at each new load, not from a regression over start-up runs. Its
second rule, for n-gram drafting with a measured share of matching requests, is left out. At K = 0
upstream skips the drafter (`cold`); by default its state is kept here, because requests alive at
that time would never be drafted for again.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.baselines.parts.batch_rounds import BatchRounds
from adaptive_spec.sim.baselines.parts.start_up_profile import StartUpProfile
from adaptive_spec.step import FinishedStep, FloatArray, Level, SpecPlan, StepContext

_KEEP = 0.85
_MEMORY_MARGIN = 1.1


class TurboSpecOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `turbospec`; upstream's defaults."""

    profile: str | None = None
    """File with a cost profile; without one, each load is profiled when it first occurs."""
    initial_acceptance: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.7
    update_interval: Annotated[int, msgspec.Meta(ge=1)] = 20
    """Steps between two decisions."""
    off_bias: Annotated[float, msgspec.Meta(gt=0)] = 1.1
    """Factor on the goodput at K = 0."""
    cold: bool = False
    """Skip the drafter at K = 0 where the engine can."""


class TurboSpecPolicy(StatelessPolicy):
    """Policy of the first local maximum of goodput, every 20 steps.

    Attributes:
        acceptance: moving average of the acceptance rate.
    """

    name: ClassVar[str] = "turbospec"
    summary: ClassVar[str] = "goodput of one acceptance rate, first maximum (SmartSpec, TurboSpec)"
    Options: ClassVar[type[msgspec.Struct]] = TurboSpecOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="2406.14066; ZhaoxuanWu/Tetris, vllm/spec_decode/dsd.py",
        granularity=Level.UNIFORM,
        faults="acceptance frozen at K = 0; one rate for all; stops at the first local maximum",
    )

    def __init__(self, options: TurboSpecOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options
        self._rounds = BatchRounds(cold=options.cold)
        self._times = StartUpProfile(options.profile)
        self.acceptance = options.initial_acceptance
        self._accepted = 0
        self._judged = 0
        self._step = 0
        self._k: int | None = None

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the present K, or every few steps a new one."""
        self._times.start(context.capability)
        measure = self._times.unmeasured(context)
        if measure is not None:
            return self._rounds.next_round(context, measure, "profiling", measuring=True)
        if context.batch_size and self._times.ready:
            if self._k is None or self._step % self._options.update_interval == 0:
                self._k = self._first_maximum(context)
            self._step += 1
        k = context.engine_k if self._k is None else self._k
        return self._rounds.next_round(context, k, f"acceptance {self.acceptance:.2f}, K = {k}")

    def observe(self, step: FinishedStep) -> None:
        """Update the acceptance rate; a step without drafts leaves it unchanged."""
        outcome = step.outcome
        self._times.record(outcome)
        judged = int((outcome.accepted + (outcome.accepted < outcome.verified)).sum())
        if judged:
            self._judged += judged
            self._accepted += int(outcome.accepted.sum())
            rate = self._accepted / self._judged
            self.acceptance = _KEEP * self.acceptance + (1.0 - _KEEP) * rate

    def _first_maximum(self, context: StepContext) -> int:
        batch = context.batch_size
        total = int(context.context_tokens.sum())
        seconds: FloatArray = self._times.round_seconds(
            batch, total, off_without_drafter=self._options.cold
        )
        best, best_goodput = 0, -math.inf
        for k in context.capability.uniform_values:
            needed = _MEMORY_MARGIN * batch * (total // batch + k + 1)
            if needed > context.kv_total_tokens:
                break
            goodput = batch * self._tokens(k) / float(seconds[k])
            if k == 0:
                goodput *= self._options.off_bias
            if goodput <= best_goodput:
                break
            best, best_goodput = k, goodput
        return best

    def _tokens(self, k: int) -> float:
        """Return the expected tokens of a request."""
        rate = self.acceptance
        return k + 1.0 if rate >= 1.0 else (1.0 - rate ** (k + 1)) / (1.0 - rate)
