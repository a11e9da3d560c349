"""Evidence of drafters that look text up instead of running a model: n-gram and suffix.

Suffix decoding knows how often each token followed (Arctic's `SuffixDecodingDraft.probs`); that is
its confidence. N-gram look-up knows only how much text matched: m tokens are shown as the
probability m / (m + 1), whose log odds are log m, and the acceptance model learns what that is
worth. Neither has a distribution, so entropy stays unknown.

Both draft on the host; nothing waits for a device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adaptive_spec.adapters.vllm.draft_signal.tap import Tap
from adaptive_spec.adapters.vllm.draft_signal.values import DraftSignals
from adaptive_spec.step import IntArray


class LookupTap(Tap):
    """Watches the n-gram or suffix proposer of one V1 model runner. There is no entropy."""

    evidence = "how much text matches"

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self._runner = runner
        self._depth = int(runner.num_spec_tokens)
        self._round: dict[str, Sequence[float]] = {}
        drafter = runner.drafter
        if hasattr(drafter, "suffix_cache"):
            self._watch_suffix(drafter.suffix_cache)
        else:
            self._watch_ngram(drafter)

    def take_signals(self) -> Callable[[], DraftSignals | None] | None:
        """The last round, once: what reads its values; None without drafts."""
        found, self._round = self._round, {}
        return functools.partial(self._signals, found) if found else None

    def _signals(self, found: dict[str, Sequence[float]]) -> DraftSignals:
        confidence = np.full((len(found), self._depth), np.nan)
        for row, values in zip(confidence, found.values(), strict=True):
            row[: len(values)] = values[: self._depth]
        return DraftSignals(tuple(found), confidence, np.full_like(confidence, np.nan))

    def _watch_suffix(self, cache: Any) -> None:
        own = cache.speculate

        def speculate(request_id: str, *args: Any, **kwargs: Any) -> Any:
            draft = own(request_id, *args, **kwargs)
            if self.wanted:
                self.read(self._read_suffix, request_id, draft)
            return draft

        cache.speculate = speculate

    def _read_suffix(self, request_id: str, draft: Any) -> None:
        if draft.token_ids:
            self._round[request_id] = list(draft.probs)

    def _watch_ngram(self, drafter: Any) -> None:
        own = drafter.propose

        def propose(*args: Any, **kwargs: Any) -> Any:
            drafts = own(*args, **kwargs)
            if self.wanted:
                self.read(self._read_ngram, drafts, args, drafter.max_n)
            return drafts

        drafter.propose = propose

    def drop(self) -> None:
        """Forget the round."""
        self._round = {}

    def _read_ngram(self, drafts: Any, arguments: tuple[Any, ...], longest: int) -> None:
        _, _, lengths, tokens = arguments
        names = self._runner.input_batch.req_ids
        found: dict[str, Sequence[float]] = {}
        for row, draft in enumerate(drafts):
            if draft:
                length = match_length(tokens[row, : lengths[row]], longest)
                found[names[row]] = [length / (length + 1.0)] * len(draft)
        self._round = found


def match_length(tokens: IntArray, longest: int) -> int:
    """Longest n <= `longest` so that the last n of these tokens occurred before; else 0."""
    total = len(tokens)
    ends: IntArray = np.flatnonzero(tokens[:-1] == tokens[-1]) if total else np.empty(0, np.int64)
    length = 0
    while len(ends) and length < longest:
        length += 1
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[total - 1 - length]]
    return length
