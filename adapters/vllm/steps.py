"""Drives a controller from a scheduler's hooks.

Order of one step: `before_schedule` (trim drafts to the plan) - vLLM schedules, calling `scheduled`
(draft depth) on the way - `after_schedule` - vLLM hands the step to the device - `think` - results
arrive: `read` - vLLM processes them - `processed`. With asynchronous scheduling the next step's
first half runs before this one's second.

The device waits for all of these but `think`, where outcomes are learned from and the next step is
planned ahead (`adaptive_spec.adapters.vllm.planned_ahead`). A plan is made in `before_schedule`
only where one made ahead cannot be used: the drafts' confidence has arrived and may choose among
them, text is looked up for the newest tokens, KV memory is short, or vLLM did not reach `think`.

No method lets an exception out: it is counted, said once, and the step runs as vLLM would have
run it.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from adaptive_spec.adapters.vllm.capability import WITHOUT_MODEL
from adaptive_spec.adapters.vllm.context import (
    Batch,
    ContextBuilder,
    drafter_limit,
    text_matches,
)
from adaptive_spec.adapters.vllm.copied_drafts import MESSAGE, ONE_HOT, Copied
from adaptive_spec.adapters.vllm.draft_signal.arrivals import SignalArrivals
from adaptive_spec.adapters.vllm.draft_signal.values import WANTED, Wanted
from adaptive_spec.adapters.vllm.drafter_state import LEAVE_OUT, DrafterState
from adaptive_spec.adapters.vllm.graph_ladder import Unpadded
from adaptive_spec.adapters.vllm.lookup import LookUp, Placement
from adaptive_spec.adapters.vllm.metrics import Metrics
from adaptive_spec.adapters.vllm.outcome import EVERYBODY, Arrived, PlannedStep, build_outcome
from adaptive_spec.adapters.vllm.planned_ahead import PlannedAhead, cut
from adaptive_spec.adapters.vllm.requests import RequestReader
from adaptive_spec.controller.controller import Controller
from adaptive_spec.engines import driver
from adaptive_spec.engines.driver import Ahead
from adaptive_spec.engines.fail_open import fail_open
from adaptive_spec.engines.request_table import RequestTable
from adaptive_spec.step import Mode, StepOutcome

_LOG = logging.getLogger("vllm.adaptive_spec")


class StepDriver(driver.StepDriver[PlannedStep, Arrived, PlannedAhead]):
    """Driver of the steps of one scheduler."""

    controller: Controller

    def __init__(
        self,
        scheduler: Any,
        controller: Controller,
        metrics: Metrics | None = None,
        lookup: LookUp | None = None,
    ) -> None:
        super().__init__(controller, _LOG)
        self._scheduler = scheduler
        self._metrics = metrics
        slots, counters = controller.slots, controller.counters
        honoured = controller.config.hints
        reader = RequestReader(counters.ignored_hint, honoured, counters.name_task)
        table = RequestTable(slots, reader.read)
        self._lookup = lookup
        self._builder = ContextBuilder(scheduler, controller.capability, table, lookup)
        self._builder.drafter_limit = drafter_limit(scheduler.vllm_config)
        self._builder.matches = text_matches(scheduler.vllm_config)
        self._builder.shows_matches = controller.config.confidence
        ahead = scheduler.vllm_config.scheduler_config.async_scheduling
        method = scheduler.vllm_config.speculative_config.method
        self._awaits_drafts = method in WITHOUT_MODEL and not ahead
        self._drafter = DrafterState(table, counters)
        self._by_scheduler = lookup is None or lookup.placement is Placement.SCHEDULER
        # The worker must then know which drafts were copied, and confirms it with each round.
        self._worker_allows = self._by_scheduler and controller.capability.sampled_drafts
        self._goes_cold = controller.capability.cold_off
        self._leaves_holes = self._goes_cold and controller.capability.off_pass
        self._kmax = controller.capability.max_draft_tokens
        self._signals = SignalArrivals(self._kmax)
        self._sets_depth = controller.capability.steers_depth
        self._engine_table = scheduler.dynamic_sd_lookup
        self._unpadded = Unpadded(self._kmax)
        self.table_replaced = False
        """`after_schedule` has something to do."""
        self._planned: PlannedStep | None = None
        self._launched: Any = None
        """vLLM's SchedulerOutput of the last step, until `think`."""
        self._not_drafted: Container[str] = ()
        """Requests whose drafts at hand no drafter has made."""
        self._updating = False

    @fail_open
    def before_schedule(self) -> None:
        """Trim the drafts at hand to what is to be verified; plan, where no plan is ready."""
        self._planned = None
        ahead = self.take_ahead()
        scheduler = self._scheduler
        if not scheduler.running and not scheduler.waiting:
            return
        if self._launched is not None:  # vLLM did not reach `think`
            self._take_launched()
            self.learn_from_results()
        builder = self._builder
        # Where KV blocks are short, K must be chosen by those that are free now: plan anew.
        if ahead is not None and ahead.holds(builder.block_pool.get_num_free_blocks()):
            planned = self._planned = ahead.step
            if planned.found is not None:
                self._copy(planned)
            if ahead.trims:
                ahead.apply()
        else:
            planned = self._planned = self._plan_step(
                builder.build(self.next_step(), self.clock(), self._signals)
            )
            cut(planned.cuts)
            self._copy(planned)
        planned.not_drafted, self._not_drafted = self._not_drafted, ()
        # Placeholders that no drafter has made could only be rejected, at the price of drafts.
        if planned.not_drafted and planned.plan.acts:
            for request in scheduler.running:
                if request.request_id in planned.not_drafted:
                    request.spec_token_ids = []
        # vLLM would fill up admitted requests to a uniform batch, which trimmed drafts are not.
        if planned.cuts and self._engine_table is None:
            scheduler.dynamic_sd_lookup = self._unpadded
            self.table_replaced = True

    def _plan_step(self, batch: Batch) -> PlannedStep:
        context, controller = batch.context, self.controller
        plan = controller.plan(context)
        cuts: list[tuple[Any, int]] = []
        if plan.acts:
            pairs = zip(batch.requests, plan.verify.tolist(), strict=True)
            cuts = [pair for pair in pairs if pair[1] < self._kmax]
        wanted = Wanted.NOTHING
        if self._signals.wanted(context, plan):
            wanted = Wanted.ENTROPY_TOO if controller.reads_entropy else Wanted.CONFIDENCE
        return PlannedStep(context, plan, cuts, wanted, batch.found)

    def _copy(self, planned: PlannedStep) -> None:
        """Put looked-up drafts in their place, as far as the text that has come is as expected."""
        plan, found = planned.plan, planned.found
        lookup = self._lookup
        if not plan.acts or plan.from_lookup is None or found is None or lookup is None:
            return
        if not lookup.allowed:
            return
        handed: list[tuple[Any, list[int]]] = []
        known: list[int] = []
        expected: list[list[int]] = []
        # Runner V1 copies only after a step that is under way; a preempted request gets no copies.
        under_way = lookup.placement is Placement.RUNNER_V1
        for row in np.flatnonzero(plan.from_lookup & (plan.verify > 0)).tolist():
            request, tokens = found.requests[row], found.after(row)
            if not tokens or request.num_computed_tokens < request.num_tokens - (not under_way):
                continue
            k = int(plan.verify[row])
            # Under way on the device, drafts have vLLM's own placeholder.
            handed.append((request, tokens[:k] if self._by_scheduler else [-1] * k))
            known.append(request.num_tokens)
            expected.append(tokens)
        if self._by_scheduler:
            # Only a sampler that expects sampled drafts must know which are not.
            known, expected = [], []
        if handed and (expected or self._worker_allows):
            names = [request.request_id for request, _ in handed]
            planned.copied = Copied(names, known, expected)
        # From here on nothing can fail: drafts that are not told of would pass for sampled ones.
        for request, drafts in handed:
            request.spec_token_ids = drafts

    @fail_open
    def scheduled(self, output: Any) -> None:
        """The step is composed: set how deep to draft at its end."""
        planned = self._planned
        if planned is not None and planned.copied is not None:
            setattr(output, MESSAGE, planned.copied)
            if self._worker_allows:
                self._take_back(planned.copied.names, output.num_scheduled_tokens)
        preempted = output.preempted_req_ids
        if preempted:
            for pending in self._pending:
                pending.lost |= preempted
        if not output.total_num_scheduled_tokens:
            self._planned = None  # an empty step: no results will come
            return
        self._not_drafted = self._without_drafts(output)
        if planned is None:
            return
        self._planned = None
        planned.output = output
        if self._not_drafted is EVERYBODY:
            planned.passes = 0
        self._launched = output
        self.launch(planned, self.clock())
        plan = planned.plan
        if self._sets_depth and plan.acts:
            output.num_spec_tokens_to_schedule = int(plan.draft_depth)
        if planned.wanted is not Wanted.ENTROPY_TOO:
            setattr(output, WANTED, planned.wanted)
        cold = plan.mode is Mode.OFF_COLD and plan.draft_depth == 0
        if cold and self._goes_cold and plan.acts:
            output.num_spec_tokens_to_schedule = LEAVE_OUT

    def _without_drafts(self, output: Any) -> Container[str]:
        """Return the requests for which the drafter does not run at the end of this step.

        Placeholders of a running request that a step leaves out (an exhausted token budget) stand
        for drafts that the worker has forgotten by then: V1 would verify -1 (vllm#46899).
        """
        builder, scheduled = self._builder, output.num_scheduled_tokens
        if builder.drafter_limit is None:  # model runner V2 drafts for each request alone
            return ()
        if builder.near_limit or output.scheduled_new_reqs or len(scheduled) > builder.running:
            requests = self._scheduler.requests
            longest = max(requests[name].num_computed_tokens + n for name, n in scheduled.items())
            if builder.beyond_drafter(longest):
                return EVERYBODY
        running = self._scheduler.running
        if len(running) <= len(scheduled):  # nobody was left out
            return ()
        return {
            request.request_id
            for request in running
            if request.request_id not in scheduled
            and request.spec_token_ids
            and request.spec_token_ids[0] < 0
        }

    def _take_back(self, copying: Sequence[str], scheduled: Mapping[str, int]) -> None:
        """Requests that found no room in the step must not keep copied drafts for the next."""
        for name in copying:
            if name not in scheduled and (request := self._scheduler.requests.get(name)):
                request.spec_token_ids = []

    @fail_open
    def after_schedule(self) -> None:
        """Give vLLM its own table of K back, where it was replaced."""
        self.table_replaced = False
        self._scheduler.dynamic_sd_lookup = self._engine_table

    @fail_open
    def think(self) -> None:
        """The device works: learn from what has arrived, and plan the step after this one."""
        output = self._take_launched()
        if output is None:
            return
        self.learn_from_results()
        now = self.clock()
        self.controller.poll_control_file(now)
        if self._lookup is not None:
            self._lookup.take_up(
                [request for request in self._scheduler.running if not request.is_prefill_chunk]
            )
        if self._signals.expected or self._signals.at_hand:
            return  # the plan waits for the confidence of its drafts
        if self._lookup is not None and self._by_scheduler:
            return  # a look-up for the tokens under way would find less than one for the newest
        if self._awaits_drafts:
            return  # a request whose text matches nothing has none
        depth = output.num_spec_tokens_to_schedule
        depth = self._kmax if depth is None else int(depth)
        if self._not_drafted is EVERYBODY:
            depth = 0
        batch = self._builder.build(self.next_step(), now, None, under_way=depth)
        since = self.controller.decides_since
        blocks = self._builder.blocks_wanted(batch.context.prefill_tokens)
        self._ahead = Ahead(PlannedAhead(self._plan_step(batch), batch, blocks), since)

    def _take_launched(self) -> Any:
        """The step that has been launched since `think`, if any."""
        output, self._launched = self._launched, None
        if output is not None and self._leaves_holes:
            self._drafter.launched(output, self._scheduler.requests)
        return output

    @fail_open
    def drafted(self, drafts: Any) -> None:
        """Drafts have arrived that no step has been planned for."""
        if self._signals.arrived(drafts):
            self._ahead = None  # a new plan may choose among these drafts
        if self._worker_allows and self._lookup is not None:
            self._lookup.allowed = getattr(drafts, ONE_HOT, False)

    @fail_open
    def read(self, output: Any, results: Any) -> None:
        """Results have arrived and are not processed yet."""
        self._updating = True
        found = self.completed(lambda planned: planned.output is output)
        if found is None:
            return
        step, seconds, now = found
        if step.found is not None:
            step.drafts_found = step.found.drafts()
        generated = list(map(len, results.sampled_token_ids))
        following = self._pending[0] if self._pending else None
        self._unlearned.append(Arrived(step, results, following, generated, seconds, now))

    @fail_open
    def processed(self) -> None:
        """Results are processed. An idle engine learns from them now, others in `think`."""
        self._updating = False
        if not self._scheduler.running:
            self._ahead = None
            self.learn_from_results()

    def outcome_of(self, results: Arrived) -> StepOutcome | None:
        """Return what a step did; take confidence that came late to where it belongs."""
        self._signals.arrived_late(results.results, results.step, results.following)
        outcome = build_outcome(results)
        if self._lookup is not None and results.step.not_copied:
            self._lookup.not_copied()
        return outcome

    def forgotten(self, names: list[str]) -> None:
        """Forget the texts that were looked up for requests that have ended."""
        if self._lookup is not None:
            self._lookup.forget(names)
        if self._builder.matches is not None:
            self._builder.matches.forget(names)

    def idle(self) -> bool:
        """Return whether vLLM has no request at all."""
        return not self._scheduler.running and not self._scheduler.waiting

    def learn_from_results(self) -> None:
        """Learn, forget and write the figures."""
        try:
            super().learn_from_results()
        finally:
            if self._metrics is not None:
                self._metrics.refresh(self.clock(), idle=self.idle())

    @fail_open
    def publish(self) -> None:
        """Show what the operator has changed: an idle engine takes no step that would."""
        if self._metrics is not None:
            self._metrics.refresh(self.clock(), idle=True)

    @fail_open
    def freed(self, request_id: str) -> None:
        """vLLM has ended a request: finished, aborted or failed."""
        self._ended.append(request_id)
        for pending in self._pending:
            pending.lost.add(request_id)
        if not self._updating:  # aborted; its name may be used again at once
            self.learn_from_results()

    @fail_open
    def weights_changed(self, what: str) -> None:
        """Start over: acceptance under the old weights does not hold for the new ones."""
        self.controller.start_over(what)

    @fail_open
    def close(self) -> None:
        """The scheduler shuts down."""
        self.controller.close()
        if self._metrics is not None:
            self._metrics.close()
