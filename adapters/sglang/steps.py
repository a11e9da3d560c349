"""Driver of a controller, called by the scheduler's hooks.

Order of one decode step: `before_run` (decide, agree with the other ranks) - SGLang asks for K
(`decided_k`), hands drafting and verification to the device - `think` - results arrive: `read` -
SGLang applies them - `applied`.

The plain loop waits for the device right after `think`, so `think` learns from the step before and
plans the one after. `before_run` plans only where that plan does not fit: the batch has changed a
lot, the operator has switched, or confidence is read. With overlap scheduling all of our work runs
while the device works: results are read and applied when the next step has been launched, and
SGLang waits for that one only after `before_run`. So `think` has nothing to do there.

No method lets an exception out: it is counted, said once, and the step runs SGLang's own K.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from adaptive_spec.adapters.sglang.agreement import OWN_SCHEDULE, WATCHING, Agreement
from adaptive_spec.adapters.sglang.confidence import ConfidenceTap
from adaptive_spec.adapters.sglang.context import ContextBuilder, RequestReader
from adaptive_spec.adapters.sglang.outcome import (
    MOST_IN_FLIGHT,
    Reading,
    RunningStep,
    build_outcome,
)
from adaptive_spec.adapters.sglang.prompt_steps import PromptSteps
from adaptive_spec.adapters.sglang.steered_params import SteeredParams
from adaptive_spec.controller.controller import Controller
from adaptive_spec.engines import driver
from adaptive_spec.engines.driver import Ahead
from adaptive_spec.engines.fail_open import fail_open
from adaptive_spec.engines.hints import NestedHints
from adaptive_spec.engines.request_table import RequestTable
from adaptive_spec.per_request import highest_of
from adaptive_spec.policy_helpers import nearest_allowed
from adaptive_spec.step import SpecPlan, StepContext, StepOutcome

BURST = 8
"""Changes that may follow each other at once after a quiet time."""


class SwitchLimit:
    """Limit of one change of K in `dwell` steps on average.

    Every change makes SGLang swap its runtime state, rebuild its chain buffers and write a log
    line. A limit on the rate, with a burst, keeps that small without stretching a look at a deeper
    K, which is one step up and one step back.

    Args:
        dwell: steps per change; 1 allows a change at every step.
    """

    def __init__(self, dwell: int) -> None:
        self._dwell = dwell
        self._burst = BURST * dwell
        self._saved = self._burst
        self._k: int | None = None
        self.changes = 0
        self.held = 0

    def follow(self, k: int) -> None:
        """Note a K that ran in this step without our choice."""
        self._saved = min(self._saved + 1, self._burst)
        self._k = k

    def settle(self, k: int, runnable: Collection[int]) -> int:
        """Return the K to run; called once per step, unless `follow` was called.

        Args:
            k: the one that is wanted.
            runnable: what may run with this many requests; a K that isn't in it is never kept.
        """
        self._saved = min(self._saved + 1, self._burst)
        if self._k is None or k == self._k:
            self._k = k
        elif self._saved >= self._dwell or self._k not in runnable:
            self._saved = max(self._saved - self._dwell, 0)
            self.changes += 1
            self._k = k
        else:
            self.held += 1
        return self._k


COVERED = 0.75
"""Least share of requests that the planned and the present batch have in common."""


class PlannedAhead(NamedTuple):
    """A plan for the next decode step, made while the device works, and what it was made for.

    The plan knows neither what the running step accepts nor which requests come or go meanwhile.
    One K serves all requests of a batch, so the plan holds while the batch stays nearly the same.
    Requests that the plan does not cover are counted, and not learned from, in this one step.

    Attributes:
        context: state that the plan was made from.
        plan: the plan.
    """

    context: StepContext
    plan: SpecPlan

    def fits(self, names: Sequence[str | None], own_k: int) -> bool:
        """Return whether the plan holds for a batch of these requests.

        Args:
            names: requests of the batch.
            own_k: K of SGLang's own schedule now, which a plan in shadow mode must have.
        """
        if not self.plan.acts and self.context.engine_k != own_k:
            return False
        planned = self.context.request_ids
        if planned == names:
            return True
        most = max(len(names), len(planned))
        return len(set(names).intersection(planned)) >= COVERED * most


_LOG = logging.getLogger("sglang.adaptive_spec")

_MOST_K = 1 << 16
"""Above every K: a replica's proposal is its number of requests times this, and K."""
_SWEEP_ABOVE = 64
"""Requests that may be remembered beside twice those that were left after the last sweep."""


class StepDriver(driver.StepDriver[RunningStep, Reading, PlannedAhead]):
    """Driver of one scheduler, on every rank; only a rank that decides has a controller."""

    def __init__(
        self,
        scheduler: Any,
        params: SteeredParams,
        agreement: Agreement,
        controller: Controller | None,
        *,
        dwell: int,
        watching: bool = False,
        confidence: ConfidenceTap | None = None,
        thinks: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Attach to a scheduler.

        Args:
            scheduler: SGLang's Scheduler.
            params: who SGLang asks for K.
            agreement: the other ranks.
            controller: made for this scheduler's capability; None on a rank that is told.
            dwell: steps per change of K, on average.
            watching: we only watch, until told otherwise.
            confidence: the drafter's probabilities, if they are read.
            thinks: SGLang calls `think` between launching a step and waiting for it.
            clock: monotonic seconds.
        """
        super().__init__(controller, _LOG, ranks=agreement, clock=clock)
        self.limit = SwitchLimit(dwell)
        self._scheduler = scheduler
        self._params = params
        self._replicas = agreement.replicas
        self._confidence = confidence
        self._ladder = tuple(params.candidate_steps)
        self._prompts = PromptSteps(self._step_clock)
        self._asked = self._ladder[-1]
        self._decided: tuple[int, int] | None = None
        self._reading: Reading | None = None
        self._thinks = thinks
        self._decoding = False
        # Kept on every rank, from what all of them know: their own schedules must learn alike.
        self._ran_own: deque[bool] = deque(maxlen=MOST_IN_FLIGHT)
        self._ran_own_k = True
        self._sweep_above = _SWEEP_ABOVE
        self._watching = watching
        if controller is not None:
            counters, honoured = controller.counters, controller.config.hints
            hints = NestedHints(counters.ignored_hint, honoured, counters.name_task)
            table = RequestTable(controller.slots, RequestReader(hints).read)
            self._builder = ContextBuilder(scheduler, controller.capability, table)

    # ------------------------------------------------------------- SGLang asks

    def decided_k(self, batch_size: int) -> int | None:
        """Return K for the batch about to run; None for SGLang's own."""
        if self._decided is None:
            return None
        planned, k = self._decided
        if planned != batch_size:
            text = f"asked for {batch_size} requests, planned for {planned}"
            self.fault("decided_k", ValueError(text))
            return None
        return k

    @property
    def watching(self) -> bool:
        """Return whether SGLang's own schedule runs and learns as without the plugin."""
        return self._watching or self.detached

    @property
    def ran_own_k(self) -> bool:
        """Return whether the step that is being read ran the K of SGLang's own schedule."""
        return self._ran_own_k

    # ------------------------------------------------------------------- hooks

    def before_run(self, batch: Any) -> None:
        """Decide for a batch that SGLang is about to run, if it decodes."""
        self._decided = None
        self._decoding = is_decoding(batch)
        if not self._decoding:
            self._prompts.launched(self.clock(), under_way=len(self._pending))
        drafts = drafts_with_others(batch) if self._replicas else self._decoding
        if self.detached or not drafts:
            return
        size = len(batch.reqs)
        proposal = self._propose(batch) if self._decoding else 0
        if proposal is None:
            proposal = OWN_SCHEDULE
        if self._replicas:
            # The replica with the most requests makes the step as long as it is: its K comes first.
            # Without a K of ours it is the launch's, the largest.
            proposal = _MOST_K * size + (proposal if proposal >= 0 else self._ladder[-1])
        k = self.settle(proposal)
        if k is None:
            return
        if self._replicas:
            k %= _MOST_K
        self._watching = k == WATCHING
        if k in self._ladder:
            self._decided = (size, k)
        if self._decoding:
            self._ran_own.append(self._decided is None or k == self._own_k(size))

    @fail_open
    def read(self, result: Any, batch: Any) -> None:
        """Read the results of a decode step before SGLang applies them."""
        self._reading = None
        self._ran_own_k = self._ran_own.popleft() if self._ran_own else True
        if self.controller is None:
            return
        names = [request.rid for request in batch.reqs]
        found = self.completed(lambda running: running.names == names)
        if found is None:
            self.other_work_ended()
            return
        self._prompts.decoded()
        self._reading = Reading(*found, result, batch, self._params.k_of)

    @fail_open
    def applied(self, batch: Any) -> None:
        """Learn from a batch whose results SGLang has processed, now or in `think`."""
        controller = self.controller
        if controller is None:
            return
        reading, self._reading = self._reading, None
        if reading is None and is_decoding(batch):
            self.other_work_ended()
        elif reading is None:
            self._prompts.record(self.clock(), len(batch.reqs), prompt_tokens(batch))
        else:
            reading.applied()
            self._unlearned.append(reading)
        self._ended += [r.rid for r in batch.reqs if r.finished()]
        # An idle scheduler launches nothing, so it does not reach `think`.
        if not self._thinks or len(self._ended) >= len(controller.slots):
            self.learn_from_results()
            self._sweep_if_many(batch, controller)

    @fail_open
    def think(self, batch: Any) -> None:
        """Learn and plan the next step while the device works on a batch."""
        controller = self.controller
        if controller is None or not self._thinks:
            return
        self.learn_from_results()
        self._sweep_if_many(batch, controller)
        if self._confidence is not None or self.detached:
            return
        requests: list[Any] = list(batch.reqs)
        if not self._decoding:  # a prompt: its requests join those that decode
            joined = {r.rid: r for r in (*self._scheduler.running_batch.reqs, *requests)}
            requests = [r for r in joined.values() if not r.finished()]
        under_way = {r.rid for r in batch.reqs}
        since = controller.decides_since
        own = self._own_k(len(requests))
        ahead = self.take_ahead()
        if ahead is None or not ahead.fits([r.rid for r in requests], own):
            ahead = self._plan_step(requests, controller, self.clock(), own, under_way)
        self._ahead = Ahead(ahead, since)

    # --------------------------------------------------------------- internals

    @fail_open
    def _propose(self, batch: Any) -> int:
        """Return K for all ranks, or `OWN_SCHEDULE`, or `WATCHING`."""
        if self.controller is None:
            return OWN_SCHEDULE
        self._pending.keep(MOST_IN_FLIGHT - 1)
        # Also a step that a fault leaves unplanned keeps its place: its results will come.
        running = RunningStep([getattr(request, "rid", None) for request in batch.reqs])
        now = self.clock()
        try:
            return self._decide(batch, self.controller, running, now)
        finally:
            self.launch(running, now)

    def _decide(self, batch: Any, controller: Controller, running: RunningStep, now: float) -> int:
        if len(self._unlearned) > 1:  # SGLang did not reach `think`
            self.learn_from_results()
        # Only here: the other ranks hear what this one decides.
        controller.poll_control_file(now)
        size = len(batch.reqs)
        own = self._own_k(size)
        ahead = self.take_ahead()
        if ahead is None or not ahead.fits(running.names, own):
            youngest = self._pending[-1] if self._pending else None
            under_way = frozenset[str | None](() if youngest is None else youngest.names)
            ahead = self._plan_step(batch.reqs, controller, now, own, under_way)
        context, plan = ahead
        k = own
        if plan.acts:
            # Only K whose state SGLang has built may run, and each change costs a swap of state.
            runnable = self._params.runnable(size)
            k = self.limit.settle(nearest_allowed(wanted_k(plan), runnable), runnable)
        else:
            self.limit.follow(own)
        running.context, running.k = context, k
        # SGLang's own schedule goes on learning while we only watch; a plan that leaves one step
        # to it does not.
        if controller.mode != "on" and not plan.acts:
            return WATCHING
        return k if plan.acts else OWN_SCHEDULE

    def _plan_step(
        self,
        requests: Sequence[Any],
        controller: Controller,
        now: float,
        own_k: int,
        under_way: Collection[str | None],
    ) -> PlannedAhead:
        tap = self._confidence
        context = self._builder.build(
            self.next_step(),
            now,
            requests,
            engine_k=own_k,
            largest=self._params.runnable(len(requests))[-1],
            asked=self._asked,
            under_way=under_way,
            certainty=None if tap is None else tap.for_plan(requests, self._ladder[-1]),
            shared_seconds=self._prompts.shared_seconds,
        )
        plan = controller.plan(context)
        self._asked = int(plan.draft_depth)
        return PlannedAhead(context, plan)

    def _own_k(self, batch_size: int) -> int:
        return min(int(self._params.own.get_steps_for_batch(batch_size)), self._ladder[-1])

    def outcome_of(self, results: Reading) -> StepOutcome | None:
        """Return what a step did."""
        outcome = build_outcome(results, self._builder.slot_of)
        if outcome is None:
            return None
        batches = self._prompts.take_batches()
        return msgspec.structs.replace(outcome, prompt_batches=batches) if batches else outcome

    def _sweep_if_many(self, batch: Any, controller: Controller) -> None:
        """Forget requests that left without a last result, such as aborted ones in the queue."""
        if len(controller.slots) <= self._sweep_above:
            return
        scheduler = self._scheduler
        known = {request.rid for request in batch.reqs}
        for others in (scheduler.running_batch, getattr(scheduler, "last_batch", None)):
            if others is not None:
                known.update(request.rid for request in others.reqs)
        known.update(request.rid for request in scheduler.waiting_queue)
        self.sweep(known)
        # The queue may be long: it is looked through once for many requests, not at each batch.
        self._sweep_above = 2 * len(controller.slots) + _SWEEP_ABOVE


def is_decoding(batch: Any) -> bool:
    """Return whether a batch has decoding requests only."""
    return batch is not None and bool(batch.forward_mode.is_decode()) and bool(batch.reqs)


def drafts_with_others(batch: Any) -> bool:
    """Return whether all replicas of attention DP draft in this step, one without requests, too.

    SGLang's worker asks the same (`EAGLEWorkerV2.forward_batch_generation`).
    """
    return not (batch.forward_mode.is_extend() or batch.is_extend_in_batch)


def prompt_tokens(batch: Any) -> int:
    """Return the prompt tokens of a batch; 0 where it has none."""
    return int(getattr(batch, "extend_num_tokens", None) or 0)


def wanted_k(plan: SpecPlan) -> int:
    """Return the one K of a plan at level UNIFORM."""
    return max(highest_of(plan.verify), 0)
