"""Whether vLLM's n-gram drafter on model runner V2 finds a match in a request's text.

That drafter always makes Kmax drafts: without a match it repeats the last token, and the scheduler
sees placeholders either way. But its search is a function of text that the scheduler has. So the
last n tokens of each request, n the shortest match that is configured, are looked up among all that
came before them: two hashes a token, nothing on the device.

With synchronous scheduling the text is whole, and a request without a match has no drafts. With
asynchronous scheduling the tokens of the step under way are missing; whether the text matched
before them is then shown as confidence, and the acceptance model learns what it is worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.step import FloatArray

FEW = 0.1
"""Below it a text shows no match."""
_NONE = 0.05
"""Shown for text without a match. Only its distance from what a match shows counts."""
_ROOM = 65_536
"""Prompt tokens taken up in a step (5 ms of CPU time); other prompts wait, unknown so far."""
_FACTOR, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


class _Text:
    """Hashes of a request's n-grams: those of the prompt in an array, later ones in a set."""

    __slots__ = ("held", "of_prompt", "since")

    def __init__(self, of_prompt: NDArray[np.uint64], held: int) -> None:
        self.of_prompt = of_prompt
        self.since: set[int] = set()
        self.held = held
        """Tokens up to which n-grams have been taken up."""

    def has(self, key: int) -> bool:
        """Return whether an n-gram came up before."""
        if key in self.since:
            return True
        wanted = np.uint64(key)
        place = int(np.searchsorted(self.of_prompt, wanted))
        return place < len(self.of_prompt) and bool(self.of_prompt[place] == wanted)


class TextMatches:
    """N-grams of the texts of one scheduler's requests. Use from its thread.

    Args:
        shortest: tokens of the shortest match (vLLM's `prompt_lookup_min`), at least 1.
    """

    def __init__(self, shortest: int) -> None:
        self._n = shortest
        self._texts: dict[str, _Text] = {}

    def find(self, requests: Sequence[Any]) -> FloatArray:
        """[B] confidence in the next drafts, by the text at hand; nan where it is not known yet."""
        room = _ROOM
        shown: FloatArray = np.full(len(requests), np.nan)
        matched = self._n / (self._n + 1.0)
        for row, request in enumerate(requests):
            text = self._texts.get(request.request_id)
            tokens = request.num_tokens
            if text is None or text.held > tokens:
                if room < 0 or request.prompt_token_ids is None:  # embeddings have no tokens
                    continue
                room -= request.num_prompt_tokens
                text = self._take_up(request)
            shown[row] = matched if self._matches(text, request.all_token_ids, tokens) else _NONE
        return shown

    def forget(self, names: Iterable[str]) -> None:
        """Drop ended requests."""
        for name in names:
            self._texts.pop(name, None)

    def _take_up(self, request: Any) -> _Text:
        """Index the n-grams of a prompt, but for the last: no token follows it yet."""
        count = request.num_prompt_tokens - 1
        prompt = np.array(request.prompt_token_ids[:count], dtype=np.uint64)
        keys = np.sort(_keys(prompt, self._n))
        text = self._texts[request.request_id] = _Text(keys, count)
        return text

    def _matches(self, text: _Text, tokens: Sequence[int], count: int) -> bool:
        """Index the n-grams that now have a token behind them; look up the last one."""
        n = self._n
        if count < n:
            return False
        first = max(text.held + 1 - n, 0)
        tail = tokens[first:count]  # a copy: of all tokens this would cost with each look-up
        for end in range(max(text.held + 1, n), count):
            text.since.add(_key(tail[end - n - first : end - first]))
        text.held = max(text.held, count - 1)
        return text.has(_key(tail[len(tail) - n :]))


def _key(tokens: Iterable[int]) -> int:
    """Hash of an n-gram, as `_keys` computes it."""
    key = 0
    for token in tokens:
        key = ((key + token + 1) * _FACTOR) & _MASK
    return key


def _keys(tokens: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """[T - n + 1] hashes of all n-grams of a text [T]; empty for a shorter one."""
    count = len(tokens) - n + 1
    keys: NDArray[np.uint64] = np.zeros(max(count, 0), dtype=np.uint64)
    for place in range(n if count > 0 else 0):
        keys = (keys + tokens[place : place + count] + np.uint64(1)) * np.uint64(_FACTOR)
    return keys
