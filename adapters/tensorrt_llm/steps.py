"""Drives a controller from an executor's hooks.

Order of one iteration: `before` (plan, agree with the other ranks) - upstream resolves K, fills up
or cuts the drafts, reserves KV - `launched` - the model runs - `read` - upstream applies the
results to the requests - `observe`. Under the overlap scheduler the next iteration's first half
runs before this one's second.

One K decides two things here: how many drafts this iteration verifies, and how many it makes for
the next. A request had as many drafts made as the K of the iteration it last ran in; where K has
grown since, the rest is filler that can only be rejected. So min(K then, K now) drafts count.

No method lets an exception out: it is counted, said once, and the iteration runs with upstream's
own K.
"""

from __future__ import annotations

import atexit
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.adapters.tensorrt_llm.agreement import Agreement
from adaptive_spec.adapters.tensorrt_llm.clock import IterationClock
from adaptive_spec.adapters.tensorrt_llm.context import Batch, ContextBuilder
from adaptive_spec.adapters.tensorrt_llm.ladder import round_down, round_up
from adaptive_spec.adapters.tensorrt_llm.requests import RequestTable, is_real, name_of
from adaptive_spec.controller.controller import Controller
from adaptive_spec.step import IntArray, Mode, SpecPlan, StepOutcome


class Iteration:
    """An iteration between its plan and its results."""

    __slots__ = ("batch", "k", "not_before", "prefilled")

    def __init__(self, batch: Batch | None) -> None:
        self.batch = batch
        """None: a fault of ours, nothing of it is followed; it only keeps its place."""
        self.k = 0
        """K that upstream really ran."""
        self.not_before = 0.0
        self.prefilled: list[Any] = []
        """Requests whose prompt ends in this iteration."""


class Reading(NamedTuple):
    """Requests of an iteration as they were before upstream applied its results.

    Attributes:
        iteration: the iteration the results are of.
        batch: its batch.
        rows: positions in the batch whose results count.
        tokens: tokens of those requests so far.
    """

    iteration: Iteration
    batch: Batch
    rows: list[int]
    tokens: list[int]


class StepDriver:
    """One per executor, used from the thread of its loop."""

    def __init__(
        self,
        executor: Any,
        controller: Controller,
        agreement: Agreement,
        *,
        engine_k: Callable[[int], int],
        complete: Any,
    ) -> None:
        """Attach to an executor.

        Args:
            executor: upstream's PyExecutor.
            controller: made for this executor's capability.
            agreement: the other ranks.
            engine_k: batch size -> K that upstream itself would use.
            complete: upstream's state of a request that has ended.
        """
        self.controller = controller
        # The executor holds this driver; upstream frees GPU memory when its last reference goes.
        self._executor = weakref.proxy(executor)
        self._agreement = agreement
        self._engine_k = engine_k
        self._complete = complete
        self._ladder = controller.capability.uniform_values
        self._table = RequestTable(controller.slots)
        self._builder = ContextBuilder(self._executor, controller.capability, self._table)
        self._clock = IterationClock()
        self._step = 0
        self._planned: Iteration | None = None
        self._in_flight: deque[Iteration] = deque()
        self._detached = False

    def before(self, scheduled_batch: Any) -> int | None:
        """Decide. Returns the K to run on every rank, or None for upstream's own."""
        self._planned = None
        if self._detached:
            return None
        proposal = own = self._own_k(scheduled_batch)
        if self._agreement.decides:
            try:
                proposal = self._decide(scheduled_batch, own)
            except Exception as error:
                self.fault("before", error)
        if self.controller.mode != "on":
            return None
        try:
            # Also after a fault: the other ranks are waiting.
            return self._agreement.settle(max(proposal, self._ladder[0]))
        except Exception as error:
            self._detached = True
            self.fault("settle", error)
            return None

    def launched(self, scheduled_batch: Any) -> None:
        """Upstream has set K for this iteration."""
        if not self._agreement.decides:
            return
        iteration, self._planned = self._planned or Iteration(None), None
        self._in_flight.append(iteration)
        try:
            iteration.not_before = self._clock.launched(time.monotonic())
            if iteration.batch is None:
                self._table.lose_track()
                return
            iteration.k = int(self._executor.model_engine.runtime_draft_len)
            iteration.prefilled = [
                request
                for request in scheduled_batch.context_requests_last_chunk
                if is_real(request)
            ]
            self._table.ran(iteration.batch.context.slots, iteration.prefilled, iteration.k)
        except Exception as error:
            self._table.lose_track()
            self.fault("launched", error)

    def read(self, sample_state: Any) -> Reading | None:
        """Results are there and not applied yet."""
        try:
            return self._read(sample_state)
        except Exception as error:
            self.fault("read", error)
            return None

    def observe(self, reading: Reading | None) -> None:
        """Results are applied: learn from them, then forget the requests that ended."""
        if reading is None:
            return
        try:
            self._observe(reading)
        except Exception as error:
            self.fault("observe", error)

    def close(self) -> None:
        """The executor has shut down: write what is buffered."""
        atexit.unregister(self.controller.close)
        try:
            self.controller.close()
        except Exception as error:
            self.fault("close", error)

    def fault(self, hook: str, error: Exception) -> None:
        """Count an exception of ours; never raises."""
        try:
            what = f"hook {hook} raised {type(error).__name__}: {error}"
            self.controller.fault(what, time.monotonic())
        except Exception:  # not even the report may reach the engine
            return

    def _own_k(self, scheduled_batch: Any) -> int:
        largest = self.controller.capability.max_draft_tokens
        try:
            return max(0, min(int(self._engine_k(scheduled_batch.batch_size)), largest))
        except Exception as error:
            self.fault("engine's own K", error)
            return largest

    def _decide(self, scheduled_batch: Any, own: int) -> int:
        self._step += 1
        self.sweep()
        # An iteration that was planned and then not run has no results to wait for.
        while len(self._in_flight) > self._builder.ahead:
            self._in_flight.popleft()
        under_way = self._in_flight[-1].batch if self._in_flight else None
        batch = self._builder.build(self._step, time.monotonic(), scheduled_batch, own, under_way)
        plan = self.controller.plan(batch.context)
        self._planned = Iteration(batch)
        if plan.mode is Mode.ENGINE or plan.mode is Mode.SHADOW:
            return own
        return self.k_for(batch.context.draft_available, plan)

    def k_for(self, available: IntArray, plan: SpecPlan) -> int:
        """The one K that a plan comes to.

        The depth for the next iteration decides, because it costs nothing to verify fewer drafts
        than planned but every iteration drafts as deep as it verifies. Where the plan leaves
        drafts at hand unverified, no more than it verifies.
        """
        k = round_up(plan.draft_depth, self._ladder)
        if bool((plan.verify < available).any()):
            # Memory may afford a K between two of the ladder.
            k = min(k, round_down(int(plan.verify.max()), self._ladder))
        return k

    def _read(self, sample_state: Any) -> Reading | None:
        if sample_state is None:
            # Upstream failed in forward or sampling; which results will come is unknown.
            self._in_flight.clear()
            self._clock.lost()
            return None
        iteration = self._take({id(request) for request in sample_state.requests})
        if iteration is None:
            return None
        batch = iteration.batch
        if batch is None:
            self._clock.completed(iteration.not_before, time.monotonic())
            return None
        # Upstream doesn't touch what has ended meanwhile.
        rows = [r for r, request in enumerate(batch.requests) if request.state != self._complete]
        return Reading(iteration, batch, rows, [batch.requests[r].get_num_tokens(0) for r in rows])

    def _take(self, present: set[int]) -> Iteration | None:
        """The oldest iteration, whose requests these must be; older ones never had results."""
        while self._in_flight:
            iteration = self._in_flight.popleft()
            batch = iteration.batch
            if batch is None or all(id(request) in present for request in batch.requests):
                return iteration
        return None

    def _observe(self, reading: Reading) -> None:
        iteration, now = reading.iteration, time.monotonic()
        seconds = self._clock.completed(iteration.not_before, now)
        batch, k = reading.batch, iteration.k
        context = batch.context
        requests = [batch.requests[row] for row in reading.rows]
        if context.batch_size:
            rows = np.array(reading.rows, dtype=np.int64)
            verified = np.minimum(context.draft_available[rows], k)
            accepted = np.array([r.py_num_accepted_draft_tokens for r in requests], dtype=np.int64)
            after = np.array([r.get_num_tokens(0) for r in requests], dtype=np.int64)
            self.controller.observe(
                StepOutcome(
                    step=context.step,
                    slots=context.slots[rows],
                    verified=verified,
                    # Filler that happened to be right is no credit to the drafter.
                    accepted=np.minimum(accepted.clip(0), verified),
                    emitted=after - np.array(reading.tokens, dtype=np.int64),
                    batch_size=context.batch_size,
                    batch_tokens=context.batch_size * self._builder.tokens_per_request(k),
                    context_tokens=int(context.context_tokens.sum()),
                    prefill_tokens=context.prefill_tokens,
                    draft_depth=k,
                    ragged=False,
                    seconds=seconds,
                    now=now,
                )
            )
        self._finish(
            name_of(request)
            for request in (*batch.requests, *iteration.prefilled)
            if request.state == self._complete
        )

    def sweep(self) -> None:
        """Forget requests that left without a last result: cancelled, or failed.

        Done once there are more of ours than upstream's, so no more than that are ever held.
        """
        active = self._executor.active_requests
        if len(self._table.names) > len(active):
            self._finish(self._table.names - {name_of(request) for request in active})

    def _finish(self, names: Iterable[str]) -> None:
        ended = [name for name in names if name in self._table.names]
        if ended:
            self._table.names.difference_update(ended)
            self.controller.finish(ended)
