"""The scheduler's state before a decode step, as a `StepContext`.

SGLang runs one K for the whole batch, so a client's cap takes a request out of what speaks for a
larger K; it can't shield one request from the K that the others run. A batch in which all are
capped runs no more than the largest of their caps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import add, gt
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.adapters.sglang.confidence import Certainty
from adaptive_spec.engines.hints import NO_CAP, NestedHints
from adaptive_spec.engines.request_table import RequestConstants, RequestRows, RequestTable
from adaptive_spec.step import Capability, IntArray, StepContext

_UNKNOWN_KV = 1 << 40


class _Limits(NamedTuple):
    """Hold the parts of a context that last while the same requests decode with the same K.

    Attributes:
        rows: constants of the requests.
        of: largest K that may run, and the depth that the plan before asked for.
        available: [B] drafts at hand, but for requests near their end.
        possible: [B] drafts that the next step may use, likewise.
        prompt_tokens: [B] length of each prompt.
        free_until: [B] emitted tokens up to which a request is not near its end.
    """

    rows: RequestRows
    of: tuple[int, int]
    available: IntArray
    possible: IntArray
    prompt_tokens: list[int]
    free_until: list[int]


class ContextBuilder:
    """Reader of one scheduler's state, for its thread."""

    def __init__(self, scheduler: Any, capability: Capability, table: RequestTable) -> None:
        self._scheduler = scheduler
        self._capability = capability
        self._kmax = capability.max_draft_tokens
        self._table = table
        self._limits: _Limits | None = None
        self.slot_of = table.slot_of
        self._kv_known = not any(
            getattr(scheduler, name, False) for name in ("is_hybrid_swa", "is_hybrid_ssm")
        )

    def build(
        self,
        step: int,
        now: float,
        requests: Sequence[Any],
        *,
        engine_k: int,
        largest: int,
        asked: int,
        under_way: Collection[str | None],
        certainty: Certainty | None,
        shared_seconds: float = 0.0,
    ) -> StepContext:
        """Return the context of a decode batch that is about to run.

        SGLang drafts at the beginning of a step what it verifies at its end. In the words of the
        seam: the drafts at hand are those the plan before asked for, and the depth of this plan is
        what the next step will have at hand. A request with r tokens to go uses at most r - 1
        drafts besides the bonus token; a step under way emits at least one of those tokens.

        Args:
            step: number of the step.
            now: monotonic clock, seconds.
            requests: SGLang's requests of the batch.
            engine_k: K that SGLang's own schedule would run.
            largest: largest K that may run with this many requests.
            asked: draft depth of the plan before.
            under_way: requests whose last step has no results yet.
            certainty: of the first drafts, if it is known.
            shared_seconds: that a step costs besides its own.
        """
        names = [request.rid for request in requests]
        limits = self._limits_of(self._table.rows_of(names, requests), largest, asked)
        rows, available, possible = limits.rows, limits.available, limits.possible
        emitted = [len(request.output_ids) for request in requests]
        if any(map(gt, emitted, limits.free_until)):
            ahead = [name in under_way for name in names]
            left = rows.most_output - np.array(emitted) - np.array(ahead)
            available = np.maximum(np.minimum(available, left - 1), 0)
            possible = np.maximum(np.minimum(possible, left - 2), 0)
        context_tokens = list(map(add, limits.prompt_tokens, emitted))
        free, total = self._kv_tokens()
        return StepContext(
            step=step,
            capability=self._capability,
            request_ids=rows.names,
            slots=rows.slots,
            context_tokens=np.array(context_tokens, dtype=np.int64),
            draft_available=available,
            draft_possible=possible,
            engine_k=engine_k,
            tpot_target=rows.tpot_target,
            task=rows.task,
            temperature=rows.temperature,
            confidence=None if certainty is None else certainty.confidence,
            entropy=None if certainty is None else certainty.entropy,
            waiting=len(self._scheduler.waiting_queue),
            kv_free_tokens=free,
            kv_total_tokens=total,
            shared_seconds=shared_seconds,
            opted_out=rows.opted_out,
            now=now,
        )

    def _limits_of(self, rows: RequestRows, largest: int, asked: int) -> _Limits:
        limits = self._limits
        if limits is None or limits.rows is not rows or limits.of != (largest, asked):
            self._limits = limits = _Limits(
                rows,
                (largest, asked),
                np.minimum(rows.draft_cap, min(largest, asked)),
                rows.depth_cap(largest),
                rows.prompt_tokens.tolist(),
                (rows.most_output - largest - 3).tolist(),
            )
        return limits

    def _kv_tokens(self) -> tuple[int, int]:
        """Return free and total tokens of the KV pool; evictable cache entries are free."""
        scheduler = self._scheduler
        if not self._kv_known:
            return _UNKNOWN_KV, _UNKNOWN_KV
        free = scheduler.token_to_kv_pool_allocator.available_size()
        free += scheduler.tree_cache.evictable_size()
        return int(free), int(scheduler.max_total_num_tokens)


class RequestReader:
    """Reader of SGLang's request objects."""

    def __init__(self, hints: NestedHints) -> None:
        # SGLang's IPC carries a dict of scalars in `custom_params`, nothing nested deeper.
        self._hints = hints

    def read(self, request: Any) -> RequestConstants:
        """Return the constants of SGLang's request object."""
        sampling = request.sampling_params
        most = sampling.max_new_tokens
        return RequestConstants(
            self._hints.read(getattr(sampling, "custom_params", None)),
            # SGLang writes greedy decoding as top_k = 1 at temperature 1.
            temperature=0.0 if sampling.top_k == 1 else float(sampling.temperature),
            prompt_tokens=len(request.origin_input_ids),
            most_output=NO_CAP if most is None else int(most),
        )
