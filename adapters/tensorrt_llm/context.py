"""Builder of a `StepContext` from the executor's state before an iteration."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.engines.request_table import RequestConstants, RequestTable
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.step import Capability, IntArray, StepContext

_UNKNOWN_KV = 1 << 40


class Batch(NamedTuple):
    """Decoding requests of the coming iteration.

    Attributes:
        requests: [B] upstream's request objects.
        context: the context for the policy.
    """

    requests: list[Any]
    context: StepContext


class ContextBuilder:
    """Reader of one executor; used from the thread of the executor's loop."""

    def __init__(self, executor: Any, capability: Capability, slots: RequestSlots) -> None:
        self._executor = executor
        self._capability = capability
        self._kmax = capability.max_draft_tokens
        self._table = RequestTable(slots, read_request)
        # Drafts made for a request when it last ran; 0 if that was not seen. The lists upstream
        # keeps don't say it: they are padded, and one iteration behind under overlap.
        self._drafted = self._table.add_column(0)
        spec_config = executor.model_engine.spec_config
        self._tokens_per_step = getattr(spec_config, "get_runtime_tokens_per_gen_step", None)
        self.ahead = 0 if executor.disable_overlap_scheduler else 1
        """Number of iterations in flight when the next one is planned."""

    def build(
        self, step: int, now: float, scheduled_batch: Any, engine_k: int, under_way: Batch | None
    ) -> Batch:
        """Return the batch that is about to run.

        A request with r tokens to go uses at most r - 1 drafts besides the bonus token. An
        iteration under way emits at least one of those tokens.

        Args:
            step: number of the iteration.
            now: monotonic clock, seconds.
            scheduled_batch: upstream's ScheduledRequests.
            engine_k: upstream's own K.
            under_way: the batch whose results have not arrived; None without one.
        """
        running = set() if under_way is None else {id(r) for r in under_way.requests}
        requests: list[Any] = []
        rows: list[tuple[int, int]] = []
        for request in scheduled_batch.generation_requests:
            if not is_real(request):
                continue
            tokens = request.get_num_tokens(0)
            left = request.py_orig_prompt_len + request.py_max_new_tokens - tokens
            requests.append(request)
            rows.append((tokens, left - (id(request) in running)))
        columns: IntArray = np.ascontiguousarray(
            np.array(rows, dtype=np.int64).reshape(len(rows), 2).T
        )
        tokens_so_far, left_tokens = columns
        constants = self._table.rows_of([name_of(request) for request in requests], requests)
        drafted = np.minimum(self._drafted[constants.slots], self._kmax)
        free, total = self._kv_tokens()
        context = StepContext(
            step=step,
            capability=self._capability,
            request_ids=constants.names,
            slots=constants.slots,
            context_tokens=tokens_so_far,
            draft_available=np.minimum(drafted, left_tokens - 1).clip(0),
            draft_possible=np.minimum(left_tokens - 2, self._kmax).clip(0),
            engine_k=engine_k,
            tpot_target=constants.tpot_target,
            task=constants.task,
            temperature=constants.temperature,
            waiting=len(self._executor.waiting_queue),
            prefill_tokens=sum(r.context_chunk_size for r in scheduled_batch.context_requests),
            kv_free_tokens=free,
            kv_total_tokens=total,
            now=now,
        )
        return Batch(requests, context)

    def slot_of(self, request: Any) -> int:
        """Return the slot of upstream's request object."""
        return self._table.slot_of(name_of(request), request)

    def record_drafts(self, slots: IntArray, prefilled: list[Any], k: int) -> None:
        """Record K drafts for all decoding requests and for the prompts that end.

        Args:
            slots: [B] slots of the decoding requests.
            prefilled: upstream's requests whose prompt ends in the iteration.
            k: the K that upstream ran.
        """
        self._drafted[slots] = k
        self._drafted[np.array([self.slot_of(r) for r in prefilled], dtype=np.int64)] = k

    def forget_drafts(self, slots: RequestSlots) -> None:
        """Reset the draft counts of all slots, because an iteration ran unobserved."""
        self._drafted.reset(np.arange(slots.capacity))

    def tokens_per_request(self, k: int) -> int:
        """Return the positions per decoding request that the target computes at K, with filler."""
        if self._tokens_per_step is None:
            return k + 1
        return int(self._tokens_per_step(k))

    def _kv_tokens(self) -> tuple[int, int]:
        manager = self._executor.kv_cache_manager
        if manager is None:
            return _UNKNOWN_KV, _UNKNOWN_KV
        stats = manager.get_kv_cache_stats()
        block = int(stats.tokens_per_block)
        return int(stats.free_num_blocks) * block, int(stats.max_num_blocks) * block


def read_request(request: Any) -> RequestConstants:
    """Return the constants of upstream's request object."""
    return RequestConstants(temperature=temperature_of(request))


def name_of(request: Any) -> str:
    """Return the engine's own name of a request."""
    return str(request.py_request_id)


def temperature_of(request: Any) -> float:
    """Return the target's sampling temperature; 0 (greedy) where none is given."""
    given = getattr(getattr(request, "sampling_config", None), "temperature", None)
    if isinstance(given, list):
        given = given[0] if given else None
    return float(given) if given is not None else 0.0


def is_real(request: Any) -> bool:
    """Return whether a request is no dummy (dummies fill up graphs and idle ranks)."""
    return not getattr(request, "is_dummy", False)
