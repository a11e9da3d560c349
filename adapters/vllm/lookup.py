"""Drafts looked up in earlier text: a second source beside vLLM's drafter.

Arctic Inference's suffix trees hold each request's prompt and output and, if the operator allows
it, the outputs of others. The trees take up new tokens while the device works; a look-up for the
newest tokens is all that a step waits for. The trees then lack the last step's tokens, which no
draft begins with.

Where the scheduler has all text, it hands a request's drafts to vLLM as a list of tokens, and no
patch is needed. Where tokens are under way, the look-up goes on over what they are expected to be,
and the worker sees whether they are (`adaptive_spec.adapters.vllm.copied_drafts`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.config import SecondSource
from adaptive_spec.step import IntArray

_LOG = logging.getLogger("vllm.adaptive_spec")

_DEPTH = 40
"""Tokens of a path of the tree: a match and its continuation."""
_LEAST_PROBABILITY = 0.1
"""Of a draft, by how often the text went on like this: vLLM's default."""
# Of a longer prompt the last tokens are taken; what does not fit waits for the next step.
_PROMPT_TOKENS = 16_384
"""Prompt tokens that the trees take up in a step (10 ms of CPU time)."""
_MOST_SECONDS = 0.01
"""CPU time after which a step looks up nothing for the rest of its requests."""
_FEWEST = 50
"""Look-ups that must fit into `_MOST_SECONDS`."""
_PAUSE_SECONDS = 10.0
"""Pause of all look-ups after a step in which fewer than `_FEWEST` fitted, or one failed."""


class Placement(Enum):
    """Who puts looked-up drafts in the place of the drafter's."""

    SCHEDULER = "scheduler"
    RUNNER_V1 = "model runner V1"
    RUNNER_V2 = "model runner V2"


class LookedUp(NamedTuple):
    """Text that was looked up for the requests of a step.

    Attributes:
        requests: [B] vLLM's request objects.
        known: [B] tokens of each, without those under way.
        tokens: [B] what is expected to follow: tokens under way, then drafts; empty where nothing
            matches.
        available: [B] drafts among them, if the tokens under way are as many as can be.
        match: [B] tokens of context that were found, those of a prompt that was asked before
            included.
    """

    requests: Sequence[Any]
    known: Sequence[int]
    tokens: list[list[int]]
    available: IntArray
    match: IntArray

    def after(self, row: int) -> list[int]:
        """Return what is expected after the tokens that have come; empty if others have come."""
        request, known, tokens = self.requests[row], self.known[row], self.tokens[row]
        come = request.num_tokens - known if tokens else 0
        if come and tokens[:come] != request.all_token_ids[known : known + come]:
            return []
        return tokens[come:]

    def drafts(self) -> list[list[int]]:
        """[B] the drafts, once all tokens before them have come."""
        return [self.after(row) for row in range(len(self.tokens))]


class LookUp:
    """Suffix trees of one scheduler's requests. Use from its thread.

    Args:
        options: the operator's.
        event: counts what happens, by name.
        placement: who puts the drafts in their place.
        allowed: False while the worker has not said that it knows copied drafts from sampled ones.

    Raises ImportError without Arctic Inference.
    """

    def __init__(
        self,
        options: SecondSource,
        event: Callable[[str], None],
        placement: Placement = Placement.SCHEDULER,
        *,
        allowed: bool = True,
    ) -> None:
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        most = options.remembered_requests if options.other_requests else 0
        self._make: Callable[[], Any] = partial(
            SuffixDecodingCache, max_tree_depth=_DEPTH, max_cached_requests=most
        )
        self._trees = self._make()
        self._known: dict[str, tuple[Any, int]] = {}
        """Each request, and how many of its tokens its tree holds."""
        self._most_asked = most
        self._asked: dict[int, None] = {}
        """Hashes of prompts whose answers the trees hold, the oldest first."""
        self._prompts: dict[str, int] = {}
        """Hash of each request's prompt, where answers to others may be copied."""
        self._event = event
        self.placement = placement
        self.allowed = allowed
        self._said: set[str] = set()
        self._paused_until = 0.0

    def find(
        self, requests: Sequence[Any], most: IntArray, under_way: IntArray, kmax: int
    ) -> LookedUp | None:
        """Look up drafts that follow the newest tokens of these requests.

        A tree returns the path with the largest sum of probabilities. So it is asked for Kmax
        drafts even where fewer may be verified: for one draft alone, a match of one token with a
        likely next token would win over a long match.

        Args:
            requests: [B] vLLM's request objects.
            most: [B] drafts of each that may be verified; 0 looks nothing up.
            under_way: [B] most tokens that the steps under way can emit.
            kmax: drafts that a step may verify for any request.

        Returns None while look-ups are not allowed, or paused because they failed or took too long.
        """
        if not self.allowed or time.perf_counter() < self._paused_until:
            return None
        began = time.thread_time()  # CPU time: wall time includes other work
        tokens: list[list[int]] = []
        match: list[int] = []
        made, late = 0, False
        if self.placement is Placement.RUNNER_V1:  # sees the tokens of the last step
            most = np.where(under_way > 0, most, 0)
        try:
            for request, room, ahead in zip(
                requests, most.tolist(), under_way.tolist(), strict=True
            ):
                if late or room <= 0 or request.request_id not in self._known:
                    tokens.append([])
                    match.append(0)
                    continue
                draft = self._trees.speculate(
                    request.request_id,
                    request.all_token_ids[-_DEPTH:],
                    max_spec_tokens=kmax + ahead,
                    max_spec_offset=ahead,  # else it drafts no more tokens than have matched
                    min_token_prob=_LEAST_PROBABILITY,
                )
                tokens.append(draft.token_ids[: room + ahead])
                match.append(self._matched(request, draft.match_len) if draft.token_ids else 0)
                made, late = made + 1, time.thread_time() - began > _MOST_SECONDS
        except Exception as error:  # whatever a tree raises, a step runs without look-ups
            self._give_up("lookup_failed", repr(error))
            return None
        if late and made < _FEWEST:
            self._give_up("lookup_slow", f"{made} took over {1e3 * _MOST_SECONDS:.0f} ms")
            return None
        known = [request.num_tokens for request in requests]
        found = np.array([len(each) for each in tokens], dtype=np.int64)
        available = np.clip(found - under_way, 0, np.maximum(most, 0))
        return LookedUp(requests, known, tokens, available, np.array(match, dtype=np.int64))

    def _matched(self, request: Any, found: int) -> int:
        """Tokens of context that agree; the prompt's, too, where its last answer goes on alike."""
        prompt = len(request.prompt_token_ids)
        again = self._prompts.get(request.request_id) in self._asked
        return found + prompt if again and found >= request.num_tokens - prompt else found

    def take_up(self, requests: Sequence[Any]) -> None:
        """Add the tokens that these requests have gained."""
        if time.perf_counter() < self._paused_until:
            return
        room = _PROMPT_TOKENS
        try:
            for request in requests:
                name = request.request_id
                held = self._known[name][1] if name in self._known else None
                if held is None:
                    if not self._may_copy(request):
                        continue
                    held = len(request.prompt_token_ids)
                    room -= min(held, _PROMPT_TOKENS)
                    if room < 0:
                        continue
                    if name in self._trees.cached_requests:
                        self._trees.evict_cached_response(name)
                    self._trees.start_request(name, request.prompt_token_ids[-_PROMPT_TOKENS:])
                    if self._most_asked:
                        self._prompts[name] = hash(tuple(request.prompt_token_ids))
                self._add_new(request, held)
        except Exception as error:  # fail open: no look-up
            self._give_up("lookup_failed", repr(error))

    def _add_new(self, request: Any, held: int) -> None:
        """Add the tokens of a request behind the first `held`."""
        new = request.all_token_ids[held:]
        if new:
            self._trees.add_active_response(request.request_id, list(new))
        self._known[request.request_id] = request, held + len(new)

    def _may_copy(self, request: Any) -> bool:
        """Return whether nothing but the model has to be asked about a request's drafts."""
        if request.prompt_token_ids is None or request.use_structured_output:
            return False  # embeddings; a grammar that is asked about the drafter's drafts
        if self.placement is not Placement.RUNNER_V1:
            return True
        # With asynchronous scheduling V1 weighs these by a copy of the drafter's drafts.
        sampling = request.sampling_params
        return not (
            sampling.presence_penalty
            or sampling.frequency_penalty
            or sampling.repetition_penalty != 1.0
            or sampling.bad_words
            or getattr(sampling, "thinking_token_budget", None)
        )

    def forget(self, names: Sequence[str]) -> None:
        """Drop ended requests; their outputs stay if other requests may use them."""
        try:
            for name in names:
                if name in self._known:
                    self._add_new(*self._known[name])  # of the last step
                    self._trees.stop_request(name)
                    del self._known[name]
                if (prompt := self._prompts.pop(name, None)) is not None:
                    self._asked.pop(prompt, None)
                    self._asked[prompt] = None
                    if len(self._asked) > self._most_asked:
                        del self._asked[next(iter(self._asked))]
        except Exception as error:  # fail open: no look-up
            self._give_up("lookup_failed", repr(error))

    def not_copied(self) -> None:
        """The worker has verified other drafts in their place."""
        if time.perf_counter() >= self._paused_until:  # else a step that was under way
            self._give_up("lookup_not_copied", "the worker does not copy them")

    def _give_up(self, event: str, why: str) -> None:
        """Count it, say it once, look nothing up for a while, then start from empty trees."""
        self._event(event)
        if event not in self._said:
            self._said.add(event)
            _LOG.warning(
                "adaptive_spec: drafts are not looked up for %.0f s: %s", _PAUSE_SECONDS, why
            )
        self._paused_until = time.perf_counter() + _PAUSE_SECONDS
        self.forget_all()

    def forget_all(self) -> None:
        """Start from empty trees."""
        for known in (self._known, self._asked, self._prompts):
            known.clear()
        self._trees = self._make()


def agreement(found: Sequence[Sequence[int]], emitted: Sequence[Sequence[int]]) -> IntArray:
    """[B] leading drafts that are what a request emitted; both [B] lists of tokens."""
    counts = []
    for drafts, tokens in zip(found, emitted, strict=True):
        count = 0
        for draft, token in zip(drafts, tokens, strict=False):
            if draft != token:
                break
            count += 1
        counts.append(count)
    return np.array(counts, dtype=np.int64)
