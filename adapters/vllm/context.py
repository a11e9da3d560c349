"""The scheduler's state before a step, as a `StepContext`."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.adapters.vllm.draft_signal.arrivals import SignalArrivals
from adaptive_spec.adapters.vllm.kv_blocks import BlockBudget
from adaptive_spec.adapters.vllm.lookup import LookedUp, LookUp
from adaptive_spec.adapters.vllm.text_matches import FEW, TextMatches
from adaptive_spec.engines.hints import NO_CAP
from adaptive_spec.engines.request_table import RequestRows, RequestTable
from adaptive_spec.step import Capability, IntArray, Level, StepContext


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
    """What stays the same while the same requests decode.

    Attributes:
        constants: of the requests.
        structured: rows of those with structured output.
        free_until: [B] computed tokens up to which nothing but its cap limits a request's drafts.
        cap: [B] most drafts of a request, 0..Kmax.
        depth_cap: [B] drafts to count on in choosing a depth; see `RequestRows.depth_cap`.
        copied_cap: [B] the most copied drafts, which the drafter's state does not limit.
    """

    constants: RequestRows
    structured: list[int]
    free_until: list[int]
    cap: IntArray
    depth_cap: IntArray
    copied_cap: IntArray


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
        table: RequestTable,
        lookup: LookUp | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._lookup = lookup
        self._capability = capability
        self._table = table
        self._kmax = capability.max_draft_tokens
        self._near = 2 * self._kmax + 3
        """Tokens to go from which on nothing but its cap limits a request."""
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
        ahead = under_way is not None
        if not self._table.holds([request.request_id for request in requests]):
            known = self._table.knows  # a request that surely ends is not entered
            requests = [r for r in requests if known(r.request_id) or _to_go(r, ahead) > 0]
        rows, computed, limited = self._rows_of(requests)
        if any(_to_go(requests[row], ahead) <= 0 for row in limited):
            requests = [request for request in requests if _to_go(request, ahead) > 0]
            rows, computed, limited = self._rows_of(requests)
        room, possible, available = rows.copied_cap, rows.depth_cap, rows.cap
        ending: list[Any] = []
        # Requests about to end would make every uniform batch ragged, and cost it its graph.
        if limited and self._capability.level is not Level.UNIFORM:
            room, possible, available = room.copy(), possible.copy(), available.copy()
            for row in limited:
                request, left = requests[row], _to_go(requests[row], ahead)
                end_at = request.num_tokens + request.num_output_placeholders
                if ahead:
                    end_at = max(end_at, computed[row] + 1)
                    ending += [request] if left < self._near else []
                least = min(left, scheduler.max_model_len - end_at)
                room[row] = min(room[row], least - 1)
                available[row] = max(min(available[row], least - 1), 0)
                possible[row] = max(min(possible[row], least - 2), 0)
        if self.drafter_limit is not None:
            longest = max((requests[row].num_tokens for row in limited), default=0)
            if self.beyond_drafter(longest):
                possible = np.zeros_like(rows.cap)
            if prefilling:
                longest = max(longest, *(r.num_tokens for r in running if r.is_prefill_chunk))
            self.near_limit = self.beyond_drafter(longest + kmax + 2)
        self.running = len(running)
        context_tokens: IntArray = np.array(computed, dtype=np.int64)
        constants = rows.constants
        structured = [requests[row] for row in rows.structured]
        if under_way is None:
            available = np.minimum(available, _drafts_of(requests, structured))
        elif under_way < kmax:
            available = np.minimum(available, max(under_way, 0))
        found = None
        if self._lookup is not None:
            tokens: IntArray = np.array([r.num_tokens for r in requests], dtype=np.int64)
            found = self._lookup.find(requests, room, context_tokens + 1 - tokens, kmax)
        shown = None if signals is None else signals.take(constants.names)
        if self.matches is not None:
            matched = self.matches.find(requests)
            if self.shows_matches:
                confidence = np.repeat(matched[:, None], kmax, axis=1)
                shown = confidence, np.full_like(confidence, np.nan)
            # The text is whole, so that drafts without a match are known to be fillers. One K for
            # the batch must not fall with the request that matches least.
            whole = not (ahead or any(r.num_output_placeholders for r in requests))
            if whole and self._capability.level is not Level.UNIFORM:
                available = np.where(matched < FEW, 0, available)
        limit = None
        if under_way is None:
            most = available if found is None else np.maximum(available, found.available)
            limit = self._blocks.draft_limit(requests, most, prompt_left)
        context = StepContext(
            step=step,
            capability=self._capability,
            request_ids=constants.names,
            slots=constants.slots,
            context_tokens=context_tokens,
            draft_available=available,
            draft_possible=possible,
            engine_k=self._engine_k(len(requests) + prefilling),
            tpot_target=constants.tpot_target,
            task=constants.task,
            temperature=constants.temperature,
            confidence=None if shown is None else shown[0],
            entropy=None if shown is None else shown[1],
            waiting=len(scheduler.waiting),
            prefill_tokens=self._prefill_tokens(len(requests), prompt_left),
            kv_free_tokens=self.block_pool.get_num_free_blocks() * scheduler.block_size,
            kv_total_tokens=self._kv_total,
            kv_draft_limit=limit,
            lookup_available=None if found is None else found.available,
            lookup_match=None if found is None else found.match,
            opted_out=constants.opted_out,
            now=now,
        )
        return Batch(requests, context, ending, structured, found)

    def _rows_of(self, requests: list[Any]) -> tuple[_Rows, list[int], list[int]]:
        """Return the rows, [B] computed tokens, and the rows of which more than a cap may limit."""
        rows, names = self._rows, [request.request_id for request in requests]
        constants = self._table.rows_of(names, requests)
        if rows is None or rows.constants is not constants:
            self._rows = rows = self._read_rows(requests, constants)
        computed = [request.num_computed_tokens for request in requests]
        pairs = enumerate(zip(computed, rows.free_until, strict=True))
        return rows, computed, [row for row, (at, free_until) in pairs if at > free_until]

    def _read_rows(self, requests: list[Any], constants: RequestRows) -> _Rows:
        kmax, far = self._kmax, self._scheduler.max_model_len - self._kmax
        if self.drafter_limit is not None:
            far = min(far, self.drafter_limit + 2)
        # Of a decoding request one token at most is not computed, and one surely under way. Where
        # the end is not known or moves, the request is looked at in each step.
        most, prompt = constants.most_output, constants.prompt_tokens
        ends = np.where(most < NO_CAP, np.minimum(prompt + most, far), 0)
        return _Rows(
            constants,
            [row for row, request in enumerate(requests) if request.use_structured_output],
            (ends - 2 - self._near).tolist(),
            np.minimum(constants.draft_cap, kmax),
            constants.depth_cap(kmax),
            np.minimum(constants.copied_cap, kmax),
        )

    def beyond_drafter(self, longest: int) -> bool:
        """Return whether a step with this longest context gets no drafts from vLLM."""
        return self.drafter_limit is not None and longest + self._kmax > self.drafter_limit

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


def _drafts_of(requests: list[Any], structured: list[Any]) -> IntArray:
    """[B] drafts at hand that may be verified."""
    drafts: IntArray = np.array([len(r.spec_token_ids) for r in requests], dtype=np.int64)
    if structured:
        drafts *= [not (r.use_structured_output and escapes_the_grammar(r)) for r in requests]
    return drafts


def _to_go(request: Any, ahead: bool) -> int:
    """Tokens of a request that are not surely emitted, nor by the steps under way."""
    under_way = ahead or request.num_output_placeholders > 0
    return int(request.num_prompt_tokens + request.max_tokens - request.num_tokens - under_way)


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
