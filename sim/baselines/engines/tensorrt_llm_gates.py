"""Baselines: TensorRT-LLM's two speculation gates, which switch speculation off for good.

Source: `SpeculationGate` in _torch/speculative/speculation_gate.py and its callers in
_torch/pyexecutor/py_executor.py, in 1.2 (#7283) and in 1.3 and main (#12905). The gates were read,
not run; the callers' inputs follow upstream's tests and published notes. Granularity: on or off for
the whole server. While on, they run one K or a `draft_len_schedule`.

| | `trtllm_request_gate` (1.2, two-engine path) | `trtllm_window_gate` (1.3+, one-engine path) |
| --- | --- | --- |
| sample | a request that has ended: tokens per iteration - 1 | an iteration: accepted / drafted |
| options | `acceptance_window`, `acceptance_length_threshold` | `acceptance_rate_window_size`, |
| | | `acceptance_rate_threshold` |

Both keep the mean of the last N samples and switch off when the mean falls below the threshold,
from the Nth sample on. Upstream sets neither N nor threshold by default (no gate), so both are
required here. Rules kept:

* Off lasts until the server restarts: without drafts, nothing can show that speculation would pay
  again. `state` is empty, because upstream's gate is open after a restart.
* Load is ignored: one threshold serves every batch size.
* Each iteration has the same weight in the window gate, whatever its batch.
* The request gate's mean counts the prompt's pass as an iteration, and iterations in which a
  schedule ran K = 0; so a schedule alone can close the gate. The gate only sees requests that have
  ended.

Off is K = 0 without a drafter pass (OFF-cold). The drafter state goes stale but is never used
again, so upstream can switch off where the adapter's smallest K is 1. On a ladder without 0 an
engine runs its smallest K instead.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, ClassVar, TypeAlias

import msgspec

from adaptive_spec.per_request import integers
from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan
from adaptive_spec.sim.baselines.engines.tensorrt_llm_schedule import (
    Schedule,
    check_schedule,
    scheduled_k,
)
from adaptive_spec.step import FinishedStep, IntArray, Level, SpecPlan, StepContext

Window: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class _WhileOnOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the K that runs while the gate is open."""

    k: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """One K for all requests; absent: the engine's own K."""
    schedule: Schedule | None = None
    """K by batch size instead, as in `trtllm_schedule`."""

    def __post_init__(self) -> None:
        if self.schedule is not None:
            if self.k is not None:
                raise ValueError("give `k` or `schedule`, not both")
            check_schedule(self.schedule)


class RequestGateOptions(_WhileOnOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `trtllm_request_gate`."""

    acceptance_window: Window
    """N, number of requests in the mean."""
    acceptance_length_threshold: Annotated[float, msgspec.Meta(ge=0)]
    """Accepted drafts per iteration below which speculation ends."""


class WindowGateOptions(_WhileOnOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `trtllm_window_gate`."""

    acceptance_rate_window_size: Window
    """N, number of iterations in the mean."""
    acceptance_rate_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)]
    """Ratio of accepted to drafted below which speculation ends."""


class _Gate:
    """Gate that closes for good when the mean of the last N samples falls below a threshold."""

    def __init__(self, window: int, threshold: float) -> None:
        self.closed = False
        self._samples: deque[float] = deque()
        self._sum = 0.0
        self._window = window
        self._threshold = threshold

    def record(self, sample: float) -> None:
        """Record a sample; ignored after closing."""
        if self.closed:
            return
        self._samples.append(sample)
        self._sum += sample
        if len(self._samples) > self._window:
            self._sum -= self._samples.popleft()
        if len(self._samples) == self._window:
            self.closed = self._sum / self._window < self._threshold


class _GatedPolicy(StatelessPolicy):
    """Policy of one K or a schedule until the gate closes, then of K = 0."""

    def __init__(self, options: _WhileOnOptions, gate: _Gate) -> None:
        self._k, self._schedule = options.k, options.schedule
        self._gate = gate

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan the K of the open gate, or 0."""
        if self._gate.closed:
            return fixed_plan(context, 0, "gate closed for good")
        k = context.engine_k if self._k is None else self._k
        if self._schedule is not None:
            k = scheduled_k(self._schedule, context.batch_size)
        return fixed_plan(context, k, f"gate open, {k}")


class TensorRTLLMWindowGatePolicy(_GatedPolicy):
    """Gate of TensorRT-LLM 1.3 and later."""

    name: ClassVar[str] = "trtllm_window_gate"
    summary: ClassVar[str] = "off for good at low acceptance per step, TensorRT-LLM 1.3's gate"
    Options: ClassVar[type[msgspec.Struct]] = WindowGateOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="TensorRT-LLM 1.3, SpeculationGate by window (#12905)",
        granularity=Level.UNIFORM,
        faults="off for good; ignores load",
    )

    def __init__(self, options: WindowGateOptions, *, seed: int = 0) -> None:
        del seed
        window, threshold = options.acceptance_rate_window_size, options.acceptance_rate_threshold
        super().__init__(options, _Gate(window, threshold))

    def observe(self, step: FinishedStep) -> None:
        """Record accepted over drafted of one iteration, unless nothing was drafted."""
        outcome = step.outcome
        drafted = int(outcome.verified.sum())
        if drafted:
            self._gate.record(int(outcome.accepted.sum()) / drafted)


class TensorRTLLMRequestGatePolicy(_GatedPolicy):
    """Gate of TensorRT-LLM 1.2."""

    name: ClassVar[str] = "trtllm_request_gate"
    summary: ClassVar[str] = "off for good at low acceptance per request, TensorRT-LLM 1.2's gate"
    Options: ClassVar[type[msgspec.Struct]] = RequestGateOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="TensorRT-LLM 1.2, SpeculationGate (#7283)",
        granularity=Level.UNIFORM,
        faults="off for good; ignores load",
    )

    def __init__(self, options: RequestGateOptions, *, seed: int = 0) -> None:
        del seed
        window, threshold = options.acceptance_window, options.acceptance_length_threshold
        super().__init__(options, _Gate(window, threshold))
        self._tokens, self._iterations = integers(0), integers(0)

    def observe(self, step: FinishedStep) -> None:
        """Count tokens and iterations of each request."""
        outcome = step.outcome
        self._tokens[outcome.slots] += outcome.emitted
        self._iterations[outcome.slots] += 1

    def forget(self, slots: IntArray) -> None:
        """Record a sample of each ended request."""
        # Add the prompt's pass, an iteration with one token.
        tokens, iterations = self._tokens[slots] + 1, self._iterations[slots] + 1
        for sample in (tokens / iterations - 1.0).tolist():
            self._gate.record(sample)
        self._tokens.reset(slots)
        self._iterations.reset(slots)
