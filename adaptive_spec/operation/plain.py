"""Figures in a form that every encoder takes.

Figures leave this process through encoders of others: the engine's messages, JSON files, Prometheus
labels. An encoder that meets a numpy number or half a character may take its thread along, and a
policy, ours or another's, can put either into its figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_MOST_DEPTH = 16
"""Deepest nesting that is shown (containers)."""
_MOST_VALUES = 20_000
"""Most values of one answer; a status of an engine with Kmax 32 has some 1,000."""
_MOST_CHARACTERS = 4_000
"""Longest text that is shown (characters)."""
_LARGEST_INTEGER = 1 << 63
CUT = "..."
"""Stands for what is left out."""


def plain(value: object) -> Any:
    """Return a copy made of bool, int, float, str, None, list and dict with text keys alone.

    Numbers of numpy become Python's, integers beyond 64 bits floats, arrays and sets lists, other
    objects the name of their type. Half characters (lone surrogates) become question marks. Values
    that are nested deeper than 16 containers, or follow 20,000 others, are left out. Raises nothing
    but what the value's own methods raise.
    """
    return _Copy().of(value, 0)


class _Copy:
    """One answer: counts its values."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def of(self, value: object, depth: int) -> Any:
        self._left -= 1
        if value is None or isinstance(value, bool | np.bool_):
            return None if value is None else bool(value)
        if isinstance(value, int | np.integer):
            whole = int(value)
            return whole if abs(whole) < _LARGEST_INTEGER else _real(whole)
        if isinstance(value, float | np.floating):
            return float(value)
        if isinstance(value, str):
            return _text(value)
        if not isinstance(value, Mapping | list | tuple | set | frozenset | np.ndarray):
            return type(value).__name__
        if depth >= _MOST_DEPTH:
            return CUT
        if isinstance(value, Mapping):
            return {
                _text(str(key)): self.of(each, depth + 1)
                for key, each in self._within(value.items())
            }
        items = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(items, Iterable):  # an array of no dimension
            return self.of(items, depth + 1)
        return [self.of(each, depth + 1) for each in self._within(items)]

    def _within(self, items: Iterable[Any]) -> Iterable[Any]:
        for item in items:
            if self._left <= 0:
                return
            yield item


def _text(text: str) -> str:
    cut = str(text[:_MOST_CHARACTERS])
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()


def _real(whole: int) -> float:
    try:
        return float(whole)
    except OverflowError:
        return float("inf") if whole > 0 else float("-inf")
