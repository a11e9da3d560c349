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
    """The requests that will decode in the coming step.

    Attributes:
        requests: [B] vLLM's request objects, for this step only.
        context: what a policy may know.
    """

    requests: list[Any]
    context: StepContext


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

    def build(self, step: int, now: float, signals: SignalArrivals) -> Batch:
        """The batch about to be scheduled.

        A request decodes if nothing of its prompt is left to compute and, with scheduling ahead,
        the steps under way do not surely finish it.

        Drafts are limited so that none can be wasted: a request with r tokens to go uses at most
        r - 1 drafts besides the bonus token. The steps under way emit at least one token, but
        may fill the context by as many as they verify.
        """
        scheduler = self._scheduler
        slot_of, enter = self._slots.get, self._table.enter
        max_model_len = scheduler.max_model_len
        requests: list[Any] = []
        ids: list[str] = []
        rows: list[tuple[int, int, int, int]] = []
        prompt_left = 0
        for request in scheduler.running:
            if request.is_prefill_chunk:
                prompt_left += request.num_tokens - request.num_computed_tokens
                continue
            tokens = request.num_tokens
            ahead = request.num_output_placeholders
            left = request.num_prompt_tokens + request.max_tokens - tokens
            if ahead:
                left -= 1
                if left <= 0:
                    continue
            room = max_model_len - tokens - ahead
            request_id = request.request_id
            slot = slot_of(request_id)
            if slot is None:
                slot = enter(request_id, request)
            requests.append(request)
            ids.append(request_id)
            rows.append(
                (
                    slot,
                    request.num_computed_tokens,
                    0 if _escape_the_grammar(request) else len(request.spec_token_ids),
                    left if left < room else room,
                )
            )
        columns: IntArray = np.ascontiguousarray(
            np.array(rows, dtype=np.int64).reshape(len(rows), 4).T
        )
        slots, context_tokens, drafted, left_tokens = columns
        if self._capability.level is Level.UNIFORM:
            # Requests about to end would make every batch ragged, and cost it its graph.
            left_tokens = np.full_like(left_tokens, self._kmax + 2)
        cap = np.minimum(self._table.draft_cap[slots], self._kmax)
        shown = signals.take(ids)
        available = np.minimum(np.minimum(drafted, cap), left_tokens - 1).clip(0)
        context = StepContext(
            step=step,
            capability=self._capability,
            request_ids=ids,
            slots=slots,
            context_tokens=context_tokens,
            draft_available=available,
            draft_possible=np.minimum(cap, left_tokens - 2).clip(0),
            engine_k=self._engine_k(len(rows)),
            tpot_target=self._table.tpot_target[slots],
            task=self._table.task[slots],
            temperature=self._table.temperature[slots],
            confidence=None if shown is None else shown[0],
            entropy=None if shown is None else shown[1],
            waiting=len(scheduler.waiting),
            prefill_tokens=self._prefill_tokens(len(rows), prompt_left),
            kv_free_tokens=scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            * scheduler.block_size,
            kv_total_tokens=self._kv_total,
            kv_draft_limit=self._blocks.draft_limit(requests, available.tolist(), prompt_left),
            now=now,
        )
        return Batch(requests, context)

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


def _escape_the_grammar(request: Any) -> bool:
    """Would vLLM verify this request's drafts without holding them against its grammar?

    Drafts made while steps are scheduled ahead stand as -1 in the scheduler. vLLM looks up their
    values, for the grammar, only if the step that made them is still under way. After an empty
    step, as in a pause, it is not, and the answer may then break the grammar, with or without us
    (vllm-project/vllm issue 54437 describes the same loss with pipeline parallelism).
    """
    return (
        request.use_structured_output
        and not request.num_output_placeholders
        and bool(request.spec_token_ids)
        and request.spec_token_ids[0] < 0
    )
