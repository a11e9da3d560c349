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
import logging
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.adapters.tensorrt_llm.agreement import Agreement
from adaptive_spec.adapters.tensorrt_llm.context import Batch, ContextBuilder, is_real, name_of
from adaptive_spec.controller.controller import Controller
from adaptive_spec.engines import driver
from adaptive_spec.engines.driver import Step
from adaptive_spec.engines.fail_open import fail_open
from adaptive_spec.policy_helpers import nearest_allowed
from adaptive_spec.step import IntArray, SpecPlan, StepOutcome

_LOG = logging.getLogger("adaptive_spec.tensorrt_llm")


class Iteration(Step):
    """An iteration between its plan and its results."""

    __slots__ = ("batch", "k", "prefilled")

    def __init__(self, batch: Batch | None) -> None:
        super().__init__(None if batch is None else batch.context)
        self.batch = batch
        """None after a fault of ours: the iteration only keeps its place in the queue."""
        self.k = 0
        """K that upstream ran."""
        self.prefilled: list[Any] = []
        """Requests whose prompt ends in this iteration."""

    def ran_for(self, present: set[int]) -> bool:
        """Return whether results of these requests, by `id`, can be this iteration's."""
        return self.batch is None or all(id(request) in present for request in self.batch.requests)


class Reading(NamedTuple):
    """Requests of an iteration, read before upstream applies its results.

    Attributes:
        iteration: the iteration that the results belong to.
        batch: its batch.
        rows: positions in the batch whose results count.
        tokens: tokens of those requests so far.
        seconds: duration of the iteration; nan without a clean measurement.
        now: time of completion.
    """

    iteration: Iteration
    batch: Batch
    rows: list[int]
    tokens: list[int]
    seconds: float
    now: float


class StepDriver(driver.StepDriver[Iteration, Reading, None]):
    """Driver of one executor; used from the thread of the executor's loop."""

    controller: Controller

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
            controller: a controller with this executor's capability.
            agreement: connection to the other ranks.
            engine_k: upstream's own K by batch size.
            complete: upstream's state of an ended request.
        """
        super().__init__(controller, _LOG, ranks=agreement)
        # The executor holds this driver; upstream frees GPU memory when its last reference goes.
        self._executor = weakref.proxy(executor)
        self._agreement = agreement
        self._engine_k = engine_k
        self._complete = complete
        self._ladder = controller.capability.uniform_values
        self._builder = ContextBuilder(self._executor, controller.capability, controller.slots)
        self._planned: Iteration | None = None

    def before(self, scheduled_batch: Any) -> int | None:
        """Decide, and return the K that every rank runs; None leaves upstream's own K."""
        self._planned = None
        if self.detached:
            return None
        largest = self.controller.capability.max_draft_tokens
        found = self._own_k(scheduled_batch)
        own = largest if found is None else max(0, min(found, largest))
        wanted = self._decide(scheduled_batch, own) if self._agreement.decides else own
        # At a load where the operator's schedule or max_concurrency is 0, nothing is drafted.
        proposal = own if wanted is None or own == 0 else wanted
        if self.controller.mode != "on":
            return None
        return self.settle(proposal)

    def launched(self, scheduled_batch: Any) -> None:
        """Record the K that upstream has set for this iteration."""
        if not self._agreement.decides:
            return
        iteration, self._planned = self._planned or Iteration(None), None
        try:
            self.launch(iteration, self.clock())
            if iteration.batch is None:
                self._builder.forget_drafts(self.controller.slots)
                return
            iteration.k = int(self._executor.model_engine.runtime_draft_len)
            iteration.prefilled = [
                request
                for request in scheduled_batch.context_requests_last_chunk
                if is_real(request)
            ]
            self._builder.record_drafts(
                iteration.batch.context.slots, iteration.prefilled, iteration.k
            )
        except Exception as error:
            self._builder.forget_drafts(self.controller.slots)
            self.fault("launched", error)

    @fail_open
    def read(self, sample_state: Any) -> Reading | None:
        """Read the results of an iteration before upstream applies them."""
        if sample_state is None:
            # Upstream failed in forward or sampling, and has ended the requests: their iteration is
            # dropped with the results of the next one.
            self._step_clock.reset()
            return None
        present = {id(request) for request in sample_state.requests}
        found = self.completed(lambda pending: pending.ran_for(present))
        if found is None:
            return None
        iteration, seconds, now = found
        batch = iteration.batch
        if batch is None:
            return None
        # Upstream doesn't touch what has ended meanwhile.
        rows = [r for r, request in enumerate(batch.requests) if request.state != self._complete]
        tokens = [batch.requests[row].get_num_tokens(0) for row in rows]
        return Reading(iteration, batch, rows, tokens, seconds, now)

    @fail_open
    def apply_reading(self, reading: Reading | None) -> None:
        """Learn from applied results, then release the requests that ended."""
        if reading is None:
            return
        self._unlearned.append(reading)
        self._ended += [
            name_of(request)
            for request in (*reading.batch.requests, *reading.iteration.prefilled)
            if request.state == self._complete
        ]
        self.learn_from_results()

    @fail_open
    def close(self) -> None:
        """Write all buffered output: the executor has shut down."""
        atexit.unregister(self.controller.close)
        self.controller.close()

    @fail_open
    def _own_k(self, scheduled_batch: Any) -> int:
        return int(self._engine_k(scheduled_batch.batch_size))

    @fail_open
    def _decide(self, scheduled_batch: Any, own: int) -> int:
        self.forget_cancelled()
        # An iteration that was planned and then not run has no results to wait for.
        self._pending.keep(self._builder.ahead)
        youngest = self._pending[-1] if self._pending else None
        under_way = None if youngest is None else youngest.batch
        batch = self._builder.build(self.next_step(), self.clock(), scheduled_batch, own, under_way)
        plan = self.controller.plan(batch.context)
        self._planned = Iteration(batch)
        return self.k_for(batch.context.draft_available, plan) if plan.acts else own

    def k_for(self, available: IntArray, plan: SpecPlan) -> int:
        """Return the one K that realises a plan.

        One K sets both the verified drafts of this iteration and the depth of its drafting. The
        planned depth decides: verifying fewer drafts than planned costs nothing. If the plan
        leaves available drafts unverified, K is at most the largest planned K_i.
        """
        k = next((k for k in self._ladder if k >= plan.draft_depth), self._ladder[-1])
        if bool((plan.verify < available).any()):
            # Memory may afford a K between two of the ladder.
            k = min(k, nearest_allowed(int(plan.verify.max()), self._ladder))
        return k

    def outcome_of(self, results: Reading) -> StepOutcome | None:
        """Return what an iteration did; None if no request decoded in it."""
        batch, k = results.batch, results.iteration.k
        context = batch.context
        if not context.batch_size:
            return None
        requests = [batch.requests[row] for row in results.rows]
        rows = np.array(results.rows, dtype=np.int64)
        verified = np.minimum(context.draft_available[rows], k)
        accepted = np.array([r.py_num_accepted_draft_tokens for r in requests], dtype=np.int64)
        # Filler that happened to be right is no credit to the drafter.
        accepted = np.minimum(accepted.clip(0), verified)
        after = np.array([r.get_num_tokens(0) for r in requests], dtype=np.int64)
        emitted = after - np.array(results.tokens, dtype=np.int64)
        return StepOutcome(
            step=context.step,
            slots=context.slots[rows],
            verified=verified,
            accepted=accepted,
            emitted=np.minimum(emitted, accepted + 1),
            batch_size=context.batch_size,
            batch_tokens=context.batch_size * self._builder.tokens_per_request(k),
            context_tokens=int(context.context_tokens.sum()),
            prefill_tokens=context.prefill_tokens,
            draft_depth=k,
            ragged=False,
            seconds=results.seconds,
            now=results.now,
        )

    def forget_cancelled(self) -> None:
        """Release requests that left without a last result (cancelled or failed).

        Runs only while more slots than upstream requests exist, which bounds the slots.
        """
        active = self._executor.active_requests
        if len(self.controller.slots) > len(active):
            self.sweep({name_of(request) for request in active})
