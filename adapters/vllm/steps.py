"""Drives a controller from a scheduler's hooks.

Order of one step: `before_schedule` (plan, trim drafts) - vLLM schedules, calling `scheduled`
(draft depth) on the way - `after_schedule` - the model runs - `read` - vLLM processes the results
- `observe`. With asynchronous scheduling the next step's first half runs before this one's second.

No method lets an exception out: it is counted, said once, and the step runs as vLLM would have
run it.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from adaptive_spec.adapters.vllm.context import ContextBuilder
from adaptive_spec.adapters.vllm.draft_signal.arrivals import SignalArrivals
from adaptive_spec.adapters.vllm.draft_signal.early_exit import EarlyExit
from adaptive_spec.adapters.vllm.draft_signal.values import WANTED, Wanted
from adaptive_spec.adapters.vllm.drafter_state import LEAVE_OUT, DrafterState
from adaptive_spec.adapters.vllm.metrics import Metrics
from adaptive_spec.adapters.vllm.outcome import PlannedStep, Reading, build_outcome, read_results
from adaptive_spec.adapters.vllm.requests import RequestReader
from adaptive_spec.controller.controller import Controller
from adaptive_spec.engines.fail_open import Guarded, fail_open
from adaptive_spec.engines.pending_steps import PendingSteps
from adaptive_spec.engines.request_table import RequestTable
from adaptive_spec.engines.step_clock import StepClock
from adaptive_spec.step import Mode

_LOG = logging.getLogger("vllm.adaptive_spec")


class StepDriver(Guarded):
    """One per scheduler."""

    def __init__(
        self, scheduler: Any, controller: Controller, metrics: Metrics | None = None
    ) -> None:
        super().__init__(controller, _LOG)
        self.controller = controller
        self._scheduler = scheduler
        self._metrics = metrics
        slots, counters = controller.slots, controller.counters
        table = RequestTable(slots, RequestReader(counters.ignored_hint).read)
        self._builder = ContextBuilder(scheduler, controller.capability, slots, table)
        self._drafter = DrafterState(table, counters)
        self._goes_cold = controller.capability.cold_off
        self._clock = StepClock()
        self._kmax = controller.capability.max_draft_tokens
        self._signals = SignalArrivals(self._kmax)
        stops = controller.capability.stops_drafting
        self._exit = EarlyExit(scheduler, controller) if stops else None
        self._sets_depth = controller.capability.steers_depth
        self._engine_table = scheduler.dynamic_sd_lookup
        self._step = 0
        self._planned: PlannedStep | None = None
        self._pending = PendingSteps[PlannedStep]()
        self._ended: list[str] = []
        self._updating = False

    @fail_open
    def before_schedule(self) -> None:
        """Decide, and trim the drafts at hand to what is to be verified."""
        self._planned = None
        scheduler = self._scheduler
        if self._exit is not None:
            self._exit.expect(None)
            if not self._exit.able:
                self._builder.stops_no_more()
        if not scheduler.running and not scheduler.waiting:
            return
        self._step += 1
        now = time.monotonic()
        self.controller.poll_control_file(now)
        batch = self._builder.build(self._step, now, self._signals)
        plan = self.controller.plan(batch.context)
        self._planned = PlannedStep(batch.context, plan)
        if not plan.acts:
            return
        whole = True
        for request, k in zip(batch.requests, plan.verify.tolist(), strict=True):
            drafts = request.spec_token_ids
            if len(drafts) > k:
                # A new list: with async scheduling all requests share one.
                request.spec_token_ids = drafts[:k]
            whole = whole and k == self._kmax
        if not whole and self._engine_table is None:
            scheduler.dynamic_sd_lookup = _Unpadded(self._kmax)

    @fail_open
    def scheduled(self, output: Any) -> None:
        """The step is composed: set how deep to draft at its end."""
        planned = self._planned
        if planned is None:
            return
        self._planned = None
        if not output.total_num_scheduled_tokens:
            return
        planned.output = output
        planned.not_before = self._clock.launched(planned.context.now, under_way=len(self._pending))
        self._pending.launched(planned)
        plan = planned.plan
        steers = self._sets_depth and plan.acts
        if steers:
            output.num_spec_tokens_to_schedule = int(plan.draft_depth)
        gave_up = self._exit is not None and self._exit.gave_up
        if not self._signals.wanted(planned.context, plan, gave_up):
            setattr(output, WANTED, Wanted.NOTHING)
        else:
            if not self.controller.reads_entropy:
                setattr(output, WANTED, Wanted.CONFIDENCE)
            if self._exit is not None and steers:
                self._exit.expect(planned)
        if not self._goes_cold:
            return
        if steers and plan.mode is Mode.OFF_COLD and plan.draft_depth == 0:
            output.num_spec_tokens_to_schedule = LEAVE_OUT
            self._drafter.left_out(output, self._scheduler.requests)
        else:
            self._drafter.ran(output)

    @fail_open
    def after_schedule(self) -> None:
        """Give vLLM its own table of K back."""
        self._scheduler.dynamic_sd_lookup = self._engine_table

    @fail_open
    def drafted(self, drafts: Any) -> None:
        """Drafts have arrived that no step has been planned for."""
        if self._exit is not None:
            self._exit.trim(drafts)
        self._signals.arrived(drafts)

    @fail_open
    def read(self, output: Any, results: Any) -> Reading | None:
        """Results have arrived and are not processed yet."""
        self._updating = True
        step = self._pending.take(lambda planned: planned.output is output)
        now = time.monotonic()
        seconds = math.nan if step is None else self._clock.completed(step.not_before, now)
        # The next step verifies the drafts that this one has made.
        self._signals.arrived_late(results, step, self._pending.oldest)
        if step is None:
            return None
        return read_results(step, results, self._scheduler.requests, seconds, now)

    @fail_open
    def observe(self, reading: Reading | None) -> None:
        """Results are processed: learn from them, then forget the requests that ended."""
        self._updating = False
        try:
            if reading is not None:
                self.controller.observe(build_outcome(reading))
        finally:
            if self._ended:
                ended, self._ended = self._ended, []
                self.controller.finish(ended)
            self._publish()

    @fail_open
    def freed(self, request_id: str) -> None:
        """vLLM has ended a request: finished, aborted or failed."""
        if self._updating:
            self._ended.append(request_id)
        else:
            self.controller.finish((request_id,))

    @fail_open
    def paused(self) -> None:
        """Scheduling has stopped or goes on: sleep, reloaded weights. Such steps take any time."""
        self._clock.interrupted(under_way=len(self._pending))

    @fail_open
    def weights_changed(self, version: str) -> None:
        """The target has other weights: what was accepted with the old ones says nothing."""
        self.controller.start_over(f"weights are now {version!r}")

    @fail_open
    def close(self) -> None:
        """The scheduler shuts down."""
        if self._exit is not None:
            self._exit.withdraw()
        self.controller.close()
        if self._metrics is not None:
            self._metrics.close()

    def _publish(self) -> None:
        """Figures for Prometheus. A disk that fails ends them; the status file remains."""
        if self._metrics is None:
            return
        scheduler = self._scheduler
        try:
            self._metrics.refresh(
                time.monotonic(), idle=not scheduler.running and not scheduler.waiting
            )
        except Exception as error:
            self._metrics = None
            self.fault("metrics", error)


class _Unpadded:
    """Stands in for vLLM's table of K by batch size while a step with trimmed drafts is composed.

    vLLM fills the single-token step of an admitted request with placeholder drafts up to
    1 + Kmax, so that the batch fits its uniform graph, unless such a table is present. With
    trimmed drafts the batch doesn't fit that graph anyway, and the placeholders are only work.
    """

    def __init__(self, k: int) -> None:
        self._k = k

    def __getitem__(self, batch_size: int) -> int:
        return self._k
