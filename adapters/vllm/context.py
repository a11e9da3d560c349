"""The scheduler's state before a step, as a `StepContext`."""

from __future__ import annotations

from itertools import islice
from operator import add
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.adapters.vllm.draft_signal.arrivals import SignalArrivals
from adaptive_spec.adapters.vllm.kv_blocks import BlockBudget
from adaptive_spec.adapters.vllm.lookup import LookedUp, LookUp
from adaptive_spec.adapters.vllm.text_matches import FEW, TextMatches
from adaptive_spec.engines.request_table import RequestTable
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.step import BoolArray, Capability, FloatArray, IntArray, Level, StepContext


class Batch(NamedTuple):
    """The requests that will decode in a coming step.

    Attributes:
        requests: [B] vLLM's request objects, for this step only.
        context: what a policy may know.
        ending: requests so near their end that they may have fewer tokens to go than drafts.
        structured: requests with structured output.
        found: what was looked up; None without a second source.
    """

    requests: list[Any]
    context: StepContext
    ending: list[Any]
    structured: list[Any]
    found: LookedUp | None = None


class _Rows(NamedTuple):
    """Arrays [B] that stay the same while the same requests decode.

    Attributes:
        version: of the request table.
        cap: most drafts of a request, 0..Kmax.
        depth_cap: drafts to count on in choosing a depth; see `RequestTable.depth_cap`.
        copied_cap: the same of copied drafts, which the drafter's state does not limit.
    """

    ids: list[str]
    version: int
    slots: IntArray
    cap: IntArray
    depth_cap: IntArray
    copied_cap: IntArray
    tpot_target: FloatArray
    task: IntArray
    temperature: FloatArray
    opted_out: BoolArray | None


def drafter_limit(vllm_config: Any) -> int | None:
    """Return the longest context with which model runner V1 drafts; None where nothing limits it.

    With one longer request in the batch, V1 drafts for nobody in it and hands out zeros as drafts
    (vllm#52762).
    """
    if vllm_config.use_v2_model_runner:
        return None
    model = vllm_config.speculative_config.draft_model_config
    limit = None if model is None else model.max_model_len
    return int(vllm_config.model_config.max_model_len if limit is None else limit)


def text_matches(vllm_config: Any) -> TextMatches | None:
    """Return what looks matches up where model runner V2 makes n-gram drafts; None elsewhere."""
    speculation = vllm_config.speculative_config
    if not vllm_config.use_v2_model_runner or speculation.method not in ("ngram", "ngram_gpu"):
        return None
    return TextMatches(int(speculation.prompt_lookup_min))


class ContextBuilder:
    """Reads one scheduler. Use from its thread."""

    def __init__(
        self,
        scheduler: Any,
        capability: Capability,
        slots: RequestSlots,
        table: RequestTable,
        lookup: LookUp | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._lookup = lookup
        self._capability = capability
        self._slots = slots
        self._table = table
        self._kmax = capability.max_draft_tokens
        self._kv_total = int(scheduler.cache_config.num_gpu_blocks) * int(scheduler.block_size)
        self._engine_table: list[int] | None = scheduler.dynamic_sd_lookup
        self._blocks = BlockBudget(scheduler, self._kmax)
        self.block_pool = scheduler.kv_cache_manager.block_pool
        self._rows: _Rows | None = None
        self.drafter_limit: int | None = None
        """Longest context with which the drafter runs; None: any."""
        self.matches: TextMatches | None = None
        """Where drafts are looked up on the device: looks up whether there are any."""
        self.shows_matches = True
        """A policy is shown what was found, as confidence."""
        self.near_limit = False
        """Whether a running request of the last batch may exceed `drafter_limit` in its step."""
        self.running = 0
        """Requests that ran when the last batch was built."""

    def build(
        self, step: int, now: float, signals: SignalArrivals | None, under_way: int | None = None
    ) -> Batch:
        """The batch about to be scheduled, or with `under_way` the one after it.

        A request decodes if nothing of its prompt is left to compute and, with scheduling ahead,
        the steps under way do not surely finish it.

        Drafts are limited so that none can be wasted: a request with r tokens to go uses at most
        r - 1 drafts besides the bonus token. The steps under way emit at least one token, but
        may fill the context by as many as they verify.

        Args:
            step: number of the step.
            now: time (seconds).
            signals: confidence of the drafts at hand; None leaves it out.
            under_way: depth at which the step is drafting that has just been scheduled; None if
                its drafts are at hand. The drafts of a batch after that step are expected to be
                that many, KV memory is left out, and what the step accepts is not known.
        """
        scheduler, kmax = self._scheduler, self._kmax
        running = scheduler.running
        requests = [request for request in running if not request.is_prefill_chunk]
        prompt_left, prefilling = 0, len(running) - len(requests)
        if prefilling:
            prompt_left = sum(
                request.num_tokens - request.num_computed_tokens
                for request in running
                if request.is_prefill_chunk
            )
        if getattr(scheduler, "decode_stagger", 1) > 1:  # stages of a pipeline take turns
            coming = scheduler.current_step + 1
            requests = [r for r in requests if r.next_decode_eligible_step <= coming]
        # Lists until there is something to limit: they cost less than arrays of a few requests.
        ahead = under_way is not None
        tokens = [request.num_tokens for request in requests]
        on_way = [request.num_output_placeholders for request in requests]
        left = [
            r.num_prompt_tokens + r.max_tokens - end - (ahead or coming > 0)
            for r, end, coming in zip(requests, tokens, on_way, strict=True)
        ]
        if left and min(left) <= 0:
            decode = [row for row, to_go in enumerate(left) if to_go > 0]
            requests, tokens, on_way, left = (
                [values[row] for row in decode] for values in (requests, tokens, on_way, left)
            )
        rows = self._rows_of(requests)
        computed = np.array([request.num_computed_tokens for request in requests], dtype=np.int64)
        structured = [request for request in requests if request.use_structured_output]
        ending: list[Any] = []
        room, possible, available = rows.copied_cap, rows.depth_cap, rows.cap
        # Requests about to end would make every uniform batch ragged, and cost it its graph.
        if requests and self._capability.level is not Level.UNIFORM:
            filled, near = list(map(add, tokens, on_way)), 2 * kmax + 3
            free = scheduler.max_model_len - max(filled) - kmax - 1
            if min(free, *left) < near:  # else nothing but its cap limits a request
                end_at: IntArray = np.array(filled, dtype=np.int64)
                if ahead:
                    ending = [r for r, to_go in zip(requests, left, strict=True) if to_go < near]
                    end_at = np.maximum(end_at, computed + 1)
                least = np.minimum(left, scheduler.max_model_len - end_at)
                room = np.minimum(rows.copied_cap, least - 1)
                available = np.maximum(np.minimum(rows.cap, least - 1), 0)
                possible = np.maximum(np.minimum(rows.depth_cap, least - 2), 0)
        if self.drafter_limit is not None:
            longest = max(tokens, default=0)
            if self.beyond_drafter(longest):
                possible = np.zeros_like(rows.cap)
            if prefilling:
                longest = max(longest, *(r.num_tokens for r in running if r.is_prefill_chunk))
            self.near_limit = self.beyond_drafter(longest + kmax + 2)
        self.running = len(running)
        if under_way is None:
            available = np.minimum(available, self._drafts_of(requests, structured))
        elif under_way < kmax:
            available = np.minimum(available, max(under_way, 0))
        found = None
        if self._lookup is not None:
            found = self._lookup.find(
                requests, room, computed + 1 - np.array(tokens, dtype=np.int64), kmax
            )
        shown = None if signals is None else signals.take(rows.ids)
        if self.matches is not None:
            matched = self.matches.find(requests)
            if self.shows_matches:
                confidence = np.repeat(matched[:, None], kmax, axis=1)
                shown = confidence, np.full_like(confidence, np.nan)
            # The text is whole, so that drafts without a match are known to be fillers. One K for
            # the batch must not fall with the request that matches least.
            if not (ahead or any(on_way)) and self._capability.level is not Level.UNIFORM:
                available = np.where(matched < FEW, 0, available)
        limit = None
        if under_way is None:
            most = available if found is None else np.maximum(available, found.available)
            limit = self._blocks.draft_limit(requests, most.tolist(), prompt_left)
        context = StepContext(
            step=step,
            capability=self._capability,
            request_ids=rows.ids,
            slots=rows.slots,
            context_tokens=computed,
            draft_available=available,
            draft_possible=possible,
            engine_k=self._engine_k(len(requests) + prefilling),
            tpot_target=rows.tpot_target,
            task=rows.task,
            temperature=rows.temperature,
            confidence=None if shown is None else shown[0],
            entropy=None if shown is None else shown[1],
            waiting=len(scheduler.waiting),
            prefill_tokens=self._prefill_tokens(len(requests), prompt_left),
            kv_free_tokens=self.block_pool.get_num_free_blocks() * scheduler.block_size,
            kv_total_tokens=self._kv_total,
            kv_draft_limit=limit,
            lookup_available=None if found is None else found.available,
            lookup_match=None if found is None else found.match,
            opted_out=rows.opted_out,
            now=now,
        )
        return Batch(requests, context, ending, structured, found)

    def _rows_of(self, requests: list[Any]) -> _Rows:
        ids, table, rows = [request.request_id for request in requests], self._table, self._rows
        if rows is not None and rows.version == table.version and rows.ids == ids:
            return rows
        slots = self._slots_of(ids, requests)
        self._rows = rows = _Rows(
            ids,
            table.version,
            slots,
            np.minimum(table.draft_cap[slots], self._kmax),
            table.depth_cap(slots, self._kmax),
            np.minimum(table.copied_cap[slots], self._kmax),
            table.tpot_target[slots],
            table.task[slots],
            table.temperature[slots],
            table.opted_out(slots),
        )
        return rows

    def _slots_of(self, ids: list[str], requests: list[Any]) -> IntArray:
        slots = self._slots.of(ids)
        if None in slots:
            enter = self._table.enter
            slots = [
                enter(name, request) if slot is None else slot
                for slot, name, request in zip(slots, ids, requests, strict=True)
            ]
        return np.array(slots, dtype=np.int64)

    def beyond_drafter(self, longest: int) -> bool:
        """Return whether a step with this longest context gets no drafts from vLLM."""
        return self.drafter_limit is not None and longest + self._kmax > self.drafter_limit

    @staticmethod
    def _drafts_of(requests: list[Any], structured: list[Any]) -> IntArray:
        """[B] drafts at hand that may be verified."""
        drafts: IntArray = np.array(
            [len(request.spec_token_ids) for request in requests], dtype=np.int64
        )
        if structured:
            kept = [not (r.use_structured_output and escapes_the_grammar(r)) for r in requests]
            drafts *= np.array(kept)
        return drafts

    def blocks_wanted(self, prompt_tokens: int) -> int:
        """Return the KV blocks that all drafts of a step need beside these prompt tokens."""
        return self._blocks.most_wanted(len(self._scheduler.running), prompt_tokens)

    def _engine_k(self, batch_size: int) -> int:
        """K that the engine would use: its own table by batch size, else the configured one."""
        table = self._engine_table
        if table is None:
            return self._kmax
        return int(table[min(max(batch_size, 1), len(table) - 1)])

    def _prefill_tokens(self, decoding: int, prompt_left: int) -> int:
        """Prompt tokens expected in the step: chunks under way and admissions, within budget.

        An estimate: prefix-cache hits are not known before vLLM looks them up.
        """
        scheduler = self._scheduler
        budget = int(scheduler.max_num_scheduled_tokens) - decoding
        free = int(scheduler.max_num_running_reqs) - len(scheduler.running)
        if scheduler.waiting and free > 0:
            for request in islice(scheduler.waiting, min(free, 8)):
                if prompt_left >= budget:
                    break
                prompt_left += request.num_tokens - request.num_computed_tokens
        return max(min(prompt_left, budget), 0)


def escapes_the_grammar(request: Any) -> bool:
    """Would vLLM verify this structured request's drafts without asking its grammar?

    Drafts made while steps are scheduled ahead stand as -1 in the scheduler. vLLM looks up their
    values, for the grammar, only if the step that made them is still under way. After an empty
    step, as in a pause, it is not, and the answer may then break the grammar, with or without us
    (vllm-project/vllm issue 54437 describes the same loss with pipeline parallelism).
    """
    return (
        not request.num_output_placeholders
        and bool(request.spec_token_ids)
        and request.spec_token_ids[0] < 0
    )
