"""The scheduler's state before a step, as a `StepContext`."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from adaptive_spec.adapters.vllm.draft_signal.arrivals import SignalArrivals
from adaptive_spec.adapters.vllm.kv_blocks import BlockBudget
from adaptive_spec.engines.request_table import RequestTable
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.step import Capability, IntArray, Level, StepContext


class Batch(NamedTuple):
    """The requests that will decode in a coming step.

    Attributes:
        requests: [B] vLLM's request objects, for this step only.
        context: what a policy may know.
        ending: requests so near their end that they may have fewer tokens to go than drafts.
        structured: requests with structured output.
    """

    requests: list[Any]
    context: StepContext
    ending: list[Any]
    structured: list[Any]


class ContextBuilder:
    """Reads one scheduler. Use from its thread."""

    def __init__(
        self, scheduler: Any, capability: Capability, slots: RequestSlots, table: RequestTable
    ) -> None:
        self._scheduler = scheduler
        self._capability = capability
        self._slots = slots
        self._table = table
        self._kmax = capability.max_draft_tokens
        self._kv_total = int(scheduler.cache_config.num_gpu_blocks) * int(scheduler.block_size)
        self._engine_table: list[int] | None = scheduler.dynamic_sd_lookup
        self._blocks = BlockBudget(scheduler, self._kmax)

    def stops_no_more(self) -> None:
        """The drafter is not ended early any more."""
        if self._capability.stops_drafting:
            self._capability = msgspec.structs.replace(self._capability, stops_drafting=False)

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
                its drafts have arrived. The drafts of a batch after that step are expected to be
                that many, KV memory is left out, and what the step accepts is not known.
        """
        scheduler = self._scheduler
        slot_of, enter = self._slots.get, self._table.enter
        max_model_len = scheduler.max_model_len
        nearly = 2 * self._kmax + 3
        requests: list[Any] = []
        ids: list[str] = []
        slot_list: list[int] = []
        lengths: list[int] = []
        drafts: list[int] = []
        lefts: list[int] = []
        ending: list[Any] = []
        structured: list[Any] = []
        prompt_left = 0
        for request in scheduler.running:
            computed = request.num_computed_tokens
            tokens = request.num_tokens
            if request.is_prefill_chunk:
                prompt_left += tokens - computed
                continue
            ahead = request.num_output_placeholders
            left = request.num_prompt_tokens + request.max_tokens - tokens
            if ahead or under_way is not None:
                left -= 1
                if left <= 0:
                    continue
            filled = tokens + ahead
            if under_way is not None and computed >= filled:
                filled = computed + 1
            room = max_model_len - filled
            request_id = request.request_id
            slot = slot_of(request_id)
            if slot is None:
                slot = enter(request_id, request)
            drafted = len(request.spec_token_ids)
            if under_way is not None:
                drafted = drafted or under_way
                if left < nearly:
                    ending.append(request)
            if request.use_structured_output:
                structured.append(request)
                if under_way is None and escapes_the_grammar(request):
                    drafted = 0
            requests.append(request)
            ids.append(request_id)
            slot_list.append(slot)
            lengths.append(computed)
            drafts.append(drafted)
            lefts.append(left if left < room else room)
        slots: IntArray = np.array(slot_list, dtype=np.int64)
        left_tokens: IntArray = np.array(lefts, dtype=np.int64)
        if self._capability.level is Level.UNIFORM:
            # Requests about to end would make every batch ragged, and cost it its graph.
            left_tokens = np.full_like(left_tokens, self._kmax + 2)
            ending = []
        cap = np.minimum(self._table.draft_cap[slots], self._kmax)
        shown = None if signals is None else signals.take(ids)
        available = np.minimum(np.array(drafts, dtype=np.int64), cap)
        available = np.minimum(available, left_tokens - 1).clip(0)
        pool = scheduler.kv_cache_manager.block_pool
        limit = None
        if under_way is None:
            limit = self._blocks.draft_limit(requests, available.tolist(), prompt_left)
        context = StepContext(
            step=step,
            capability=self._capability,
            request_ids=ids,
            slots=slots,
            context_tokens=np.array(lengths, dtype=np.int64),
            draft_available=available,
            draft_possible=np.minimum(cap, left_tokens - 2).clip(0),
            engine_k=self._engine_k(len(ids)),
            tpot_target=self._table.tpot_target[slots],
            task=self._table.task[slots],
            temperature=self._table.temperature[slots],
            confidence=None if shown is None else shown[0],
            entropy=None if shown is None else shown[1],
            waiting=len(scheduler.waiting),
            prefill_tokens=self._prefill_tokens(len(ids), prompt_left),
            kv_free_tokens=pool.get_num_free_blocks() * scheduler.block_size,
            kv_total_tokens=self._kv_total,
            kv_draft_limit=limit,
            now=now,
        )
        return Batch(requests, context, ending, structured)

    def memory_is_tight(self, prompt_tokens: int) -> bool:
        """Whether drafts may lack KV blocks in a step with so many prompt tokens."""
        return self._blocks.may_lack(len(self._scheduler.running), prompt_tokens)

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
