"""The scheduler's state before a step, as a `StepContext`."""

from __future__ import annotations

from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.adapters.vllm.draft_signal.arrivals import SignalArrivals
from adaptive_spec.adapters.vllm.kv_blocks import BlockBudget
from adaptive_spec.adapters.vllm.lookup import LookedUp, LookUp
from adaptive_spec.adapters.vllm.text_matches import FEW, TextMatches
from adaptive_spec.engines.hints import NO_CAP
from adaptive_spec.engines.request_table import RequestRows, RequestTable
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, StepContext

_MOST_LOOKED_AT = 64
"""Requests of the queue whose tokens to go are looked at."""


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


class _Drafts(NamedTuple):
    """How many drafts each request may have.

    Attributes:
        available: [B] that this step may verify, 0..Kmax; see `StepContext.draft_available`.
        possible: [B] that the next step may verify; see `StepContext.draft_possible`.
        copied: [B] that this step may verify if they are looked up, whatever the drafter's state.
    """

    available: IntArray
    possible: IntArray
    copied: IntArray


class _Constants(NamedTuple):
    """Hold the parts of a context that last while the same requests decode.

    Attributes:
        rows: of the request table.
        structured: rows of requests with structured output.
        free_until: [B] computed tokens up to which nothing but its cap limits a request's drafts.
        caps: drafts by the caps alone.
    """

    rows: RequestRows
    structured: list[int]
    free_until: list[int]
    caps: _Drafts


class _Decoding(NamedTuple):
    """The requests of a step that decode.

    Attributes:
        requests: [B] vLLM's request objects.
        constants: what is known of them already.
        computed: [B] tokens that have been computed.
        near_end: rows of requests whose end may limit their drafts.
    """

    requests: list[Any]
    constants: _Constants
    computed: list[int]
    near_end: list[int]


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
        self._constants: _Constants | None = None
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

        Args:
            step: number of the step.
            now: time (seconds).
            signals: confidence of the drafts at hand; None leaves it out.
            under_way: depth at which the step is drafting that has just been scheduled; None if
                its drafts are at hand. The drafts of a batch after that step are expected to be
                that many, KV memory is left out, and what the step accepts is not known.
        """
        scheduler = self._scheduler
        self.running = len(scheduler.running)
        ahead = under_way is not None
        requests = [request for request in scheduler.running if not request.is_prefill_chunk]
        prompts, prompt_left = [], 0
        if len(requests) < self.running:
            prompts = [request for request in scheduler.running if request.is_prefill_chunk]
            prompt_left = sum(r.num_tokens - r.num_computed_tokens for r in prompts)
        decoding = self._decoding(requests, ahead)
        requests, rows = decoding.requests, decoding.constants.rows
        drafts, ending = self._until_the_end(decoding, ahead)
        if self.drafter_limit is not None:
            drafts = self._that_fit_the_drafter(drafts, decoding, prompts)
        structured = [requests[row] for row in decoding.constants.structured]
        available = drafts.available
        if under_way is None:
            available = np.minimum(available, _at_hand(requests, structured))
        elif under_way < self._kmax:
            available = np.minimum(available, max(under_way, 0))
        context_tokens: IntArray = np.array(decoding.computed, dtype=np.int64)
        found = None
        if self._lookup is not None:
            tokens: IntArray = np.array([r.num_tokens for r in requests], dtype=np.int64)
            coming = context_tokens + 1 - tokens
            found = self._lookup.find(requests, drafts.copied, coming, self._kmax)
        shown = None if signals is None else signals.for_plan(rows.names)
        confidence, entropy = shown or (None, None)
        if self.matches is not None:
            matched = self.matches.find(requests)
            available = self._that_match(available, matched, requests, ahead)
            if self.shows_matches:
                confidence = np.repeat(matched[:, None], self._kmax, axis=1)
                entropy = np.full_like(confidence, np.nan)
        kv_draft_limit = None
        if not ahead:
            most = available if found is None else np.maximum(available, found.available)
            kv_draft_limit = self._blocks.draft_limit(requests, most, prompt_left)
        context = StepContext(
            step=step,
            capability=self._capability,
            request_ids=rows.names,
            slots=rows.slots,
            context_tokens=context_tokens,
            draft_available=available,
            draft_possible=drafts.possible,
            engine_k=self._engine_k(len(requests) + len(prompts)),
            tpot_target=rows.tpot_target,
            task=rows.task,
            temperature=rows.temperature,
            confidence=confidence,
            entropy=entropy,
            waiting=len(scheduler.waiting),
            prefill_tokens=self._prefill_tokens(len(requests), prompt_left),
            prompt_possible=self._prompt_possible(prompts),
            kv_free_tokens=self.block_pool.get_num_free_blocks() * scheduler.block_size,
            kv_total_tokens=self._kv_total,
            kv_draft_limit=kv_draft_limit,
            lookup_available=None if found is None else found.available,
            lookup_match=None if found is None else found.match,
            opted_out=rows.opted_out,
            now=now,
        )
        return Batch(requests, context, ending, structured, found)

    def _decoding(self, requests: list[Any], ahead: bool) -> _Decoding:
        """Leave out requests that wait in this step, or that the steps under way surely finish."""
        scheduler = self._scheduler
        if getattr(scheduler, "decode_stagger", 1) > 1:  # stages of a pipeline take turns
            coming = scheduler.current_step + 1
            requests = [r for r in requests if r.next_decode_eligible_step <= coming]
        names = [request.request_id for request in requests]
        if not self._table.holds(names):
            known = self._table.knows  # a request that surely ends is not entered
            requests = [r for r in requests if known(r.request_id) or _to_go(r, ahead) > 0]
            names = [request.request_id for request in requests]
        decoding = self._look_at(requests, names)
        if any(_to_go(requests[row], ahead) <= 0 for row in decoding.near_end):
            requests = [request for request in requests if _to_go(request, ahead) > 0]
            decoding = self._look_at(requests, [request.request_id for request in requests])
        return decoding

    def _look_at(self, requests: list[Any], names: list[str]) -> _Decoding:
        constants = self._constants
        rows = self._table.rows_of(names, requests)
        if constants is None or constants.rows is not rows:
            self._constants = constants = self._constants_of(requests, rows)
        computed = [request.num_computed_tokens for request in requests]
        pairs = enumerate(zip(computed, constants.free_until, strict=True))
        near_end = [row for row, (at, free_until) in pairs if at > free_until]
        return _Decoding(requests, constants, computed, near_end)

    def _constants_of(self, requests: list[Any], rows: RequestRows) -> _Constants:
        kmax, far = self._kmax, self._scheduler.max_model_len - self._kmax
        if self.drafter_limit is not None:
            far = min(far, self.drafter_limit + 2)
        # Of a decoding request one token at most is not computed, and one surely under way. Where
        # the end is not known or moves, the request is looked at in each step.
        most, prompt = rows.most_output, rows.prompt_tokens
        ends = np.where(most < NO_CAP, np.minimum(prompt + most, far), 0)
        return _Constants(
            rows,
            [row for row, request in enumerate(requests) if request.use_structured_output],
            (ends - 2 - self._near).tolist(),
            _Drafts(
                available=np.minimum(rows.draft_cap, kmax),
                possible=rows.depth_cap(kmax),
                copied=np.minimum(rows.copied_cap, kmax),
            ),
        )

    def _until_the_end(self, decoding: _Decoding, ahead: bool) -> tuple[_Drafts, list[Any]]:
        """Limit the drafts so that none can be wasted; return the requests about to end, too.

        A request with r tokens to go uses at most r - 1 drafts besides the bonus token. The steps
        under way emit at least one token, but may fill the context by as many as they verify.
        """
        caps = decoding.constants.caps
        # Requests about to end would make every uniform batch ragged, and cost it its graph.
        if not decoding.near_end or self._capability.level is Level.UNIFORM:
            return caps, []
        drafts = _Drafts(*(column.copy() for column in caps))
        ending: list[Any] = []
        for row in decoding.near_end:
            request, left = decoding.requests[row], _to_go(decoding.requests[row], ahead)
            end_at = request.num_tokens + request.num_output_placeholders
            if ahead:
                end_at = max(end_at, decoding.computed[row] + 1)
                ending += [request] if left < self._near else []
            left = min(left, self._scheduler.max_model_len - end_at)
            drafts.copied[row] = min(drafts.copied[row], left - 1)
            drafts.available[row] = max(min(drafts.available[row], left - 1), 0)
            drafts.possible[row] = max(min(drafts.possible[row], left - 2), 0)
        return drafts, ending

    def _that_fit_the_drafter(
        self, drafts: _Drafts, decoding: _Decoding, prompts: list[Any]
    ) -> _Drafts:
        """Expect no drafts if one request is too long for the drafter: it then leaves out all."""
        # Only those near their end: what the drafter holds is an end, too (`_constants_of`).
        near_end = [decoding.requests[row] for row in decoding.near_end]
        longest = max((request.num_tokens for request in near_end), default=0)
        if self.beyond_drafter(longest):
            drafts = drafts._replace(possible=np.zeros_like(drafts.possible))
        longest = max([longest, *(request.num_tokens for request in prompts)])
        self.near_limit = self.beyond_drafter(longest + self._kmax + 2)
        return drafts

    def _that_match(
        self, available: IntArray, matched: FloatArray, requests: list[Any], ahead: bool
    ) -> IntArray:
        """Leave out drafts of the device's look-up that are known to be fillers."""
        # Known once the text is whole. One K for the batch must not fall with the request that
        # matches least.
        whole = not (ahead or any(request.num_output_placeholders for request in requests))
        if whole and self._capability.level is not Level.UNIFORM:
            return np.where(matched < FEW, 0, available)
        return available

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

    def _prompt_possible(self, prompts: list[Any]) -> int:
        """Return the most drafts that requests in their prompts, or about to start, can use."""
        most = 0
        # Who is overlooked far back in the queue has no drafts in its first step, nothing worse.
        for request in chain(prompts, islice(self._scheduler.waiting, _MOST_LOOKED_AT)):
            # The step gives the first token; the next one gives one more besides the drafts.
            most = max(most, _to_go(request, ahead=False) - 2)
            if most >= self._kmax:
                return self._kmax
        return most

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


def _at_hand(requests: list[Any], structured: list[Any]) -> IntArray:
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
