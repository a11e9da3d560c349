"""A second source of drafts that plays a record, in the place of the adapter's suffix trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from adaptive_spec.adapters.vllm.lookup import LookedUp, Placement
from adaptive_spec.adapters.vllm.text_matches import FEW
from adaptive_spec.step import FloatArray, IntArray

from .script import EMITTED, Text

_MATCHES = 2.0 / 3.0
"""Shown where a text matches: two tokens do."""
WRONG = 9
"""A copied draft is an emitted token, or this."""


class ScriptedLookUp:
    """Stand in for `adaptive_spec.adapters.vllm.lookup.LookUp` where no step is scheduled ahead."""

    placement = Placement.SCHEDULER
    allowed = True

    def __init__(self, texts: Mapping[str, Text]) -> None:
        self._texts = texts

    def find(
        self, requests: Sequence[Any], most: IntArray, under_way: IntArray, kmax: int
    ) -> LookedUp:
        """Look up drafts; see `LookUp.find`. Nothing is under way."""
        tokens: list[list[int]] = []
        match: list[int] = []
        for request, room in zip(requests, most.tolist(), strict=True):
            text = self._texts.get(request.request_id)
            if text is None or room <= 0 or text.lines.copied is None:
                tokens.append([])
                match.append(0)
                continue
            lines, place = text.lines, text.place
            found = min(text.lines.copied[place], room, kmax)
            right = min(lines.copied_right[place], found)
            tokens.append([EMITTED] * right + [WRONG] * (found - right))
            match.append(lines.copied_match[place] if found else 0)
        known = [request.num_tokens for request in requests]
        available: IntArray = np.array([len(each) for each in tokens], dtype=np.int64)
        return LookedUp(requests, known, tokens, available, np.array(match, dtype=np.int64))

    def take_up(self, requests: Sequence[Any]) -> None:
        """The record has all text."""

    def forget(self, names: Sequence[str]) -> None:
        """Nothing is kept."""

    def forget_all(self) -> None:
        """Nothing is kept."""

    def not_copied(self) -> None:
        """The scheduler itself hands the drafts over."""


class ScriptedMatches:
    """Stand in for `adaptive_spec.adapters.vllm.text_matches.TextMatches` with runner V2's n-grams.

    The texts of a script are no texts; its records say where n-gram found drafts.
    """

    def __init__(self, texts: Mapping[str, Text]) -> None:
        self._texts = texts

    def find(self, requests: Sequence[Any]) -> FloatArray:
        """Return whether the scheduler's text has a match; see `TextMatches.find`."""
        shown: FloatArray = np.full(len(requests), np.nan)
        for row, request in enumerate(requests):
            text = self._texts.get(request.request_id)
            if text is not None and text.lines.proposed is not None:
                place = text.place_after(request.num_output_tokens)
                shown[row] = _MATCHES if text.lines.proposed[place] else FEW / 2.0
        return shown

    def forget(self, names: Iterable[str]) -> None:
        """Nothing is kept."""
