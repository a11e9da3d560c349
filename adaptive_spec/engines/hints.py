"""Hints: a client's wishes about speculation for one request.

Engines pass hints as flat keys among others (`FlatHints`) or as one dict (`NestedHints`).

===========  ==========================================================
``off``      0 or 1, or a boolean: no speculation for this request
``k_cap``    integer >= 0: most drafts per step
``tpot_ms``  number >= 0.001: requested milliseconds per output token
``task``     text of 1 to 64 characters: label of similar requests
===========  ==========================================================

Clients may send anything, so the reader never raises and its memory is bounded. A hint that the
server does not honour (`adaptive_spec.config.Config.hints`) and an unusable value are counted and
ignored, as if the key were absent. The number and the length of task labels and of named unknown
keys are limited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import ClassVar, NamedTuple

KEYS = frozenset({"off", "k_cap", "tpot_ms", "task"})
"""All hints."""

LEAST_TPOT_MS = 0.001
"""Smallest latency target (milliseconds): below the time of any step, and above rounding to 0."""

KEY = "adaptive_spec"
"""Name of our hints among a client's other parameters."""

NO_CAP = 1 << 30
"""Draft cap of a request without a cap (drafts)."""

MAX_TASKS = 64
"""Most numbered task labels; the least recently used one loses its number."""

MAX_TASK_CHARACTERS = 64

MAX_UNKNOWN_KEYS = 16
"""Most unknown keys counted by name, which makes typing errors visible."""

MAX_KEY_CHARACTERS = 64

OTHER_KEYS = "(other keys)"
"""Name under which further unknown keys are counted."""


class Hints(NamedTuple):
    """Parsed wishes of one request.

    Attributes:
        draft_cap: most drafts per step; `NO_CAP` without a cap.
        tpot_seconds: requested seconds per output token; inf without a target.
        task: number of the task label; -1 without one.
    """

    draft_cap: int = NO_CAP
    tpot_seconds: float = math.inf
    task: int = -1


NO_HINTS = Hints()


class RecentNumbers:
    """Numbers 0, 1, 2 and so on for keys, in order of appearance.

    Beyond `most` keys, the least recently used key is forgotten; no number is given twice.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[Hashable, int] = {}
        self._next = 0

    def knows(self, key: Hashable) -> bool:
        """Return whether the key has a number."""
        return key in self._numbers

    def of(self, key: Hashable) -> int:
        """Return the key's number, a new one for a new or forgotten key."""
        number = self._numbers.pop(key, -1)
        if number < 0:
            number, self._next = self._next, self._next + 1
            if len(self._numbers) >= self._most:
                del self._numbers[next(iter(self._numbers))]
        self._numbers[key] = number  # the last key is the most recently used
        return number


class HintParser:
    """Parser of keys and values into `Hints`; one per process, because it numbers the task labels.

    Args:
        ignored: called with the prefixed key of every hint that is not used.
        honoured: hints that the server honours.
        named: called with each new number of a task label, and the label.
    """

    prefix: ClassVar[str]
    """The clients' prefix of the keys, such as ``adaptive_spec_``."""

    def __init__(
        self,
        ignored: Callable[[str], None],
        honoured: Iterable[str] = KEYS,
        named: Callable[[int, str], None] = lambda number, label: None,
    ) -> None:
        self._ignored = ignored
        self._honoured = frozenset(honoured)
        self._named = named
        self._tasks = RecentNumbers(MAX_TASKS)
        self._unknown: set[str] = set()

    def parse(self, given: Iterable[tuple[object, object]]) -> Hints:
        """Return the hints among pairs of key, without prefix, and value. Never raises."""
        cap, tpot, task = NO_CAP, math.inf, -1
        for key, value in given:
            if not isinstance(key, str) or key not in self._honoured:
                self.ignore(key)
            elif key == "off" and (flag := _flag(value)) is not None:
                cap = 0 if flag else cap
            elif key == "k_cap" and (count := _count(value)) is not None:
                cap = min(cap, count)
            elif key == "tpot_ms" and (seconds := _seconds(value)) is not None:
                tpot = seconds
            elif key == "task" and (number := self._task_number(value)) is not None:
                task = number
            else:
                self.ignore(key)
        return Hints(cap, tpot, task)

    def ignore(self, key: object) -> None:
        """Count a key, without prefix, whose value cannot be used."""
        self._ignored(self.prefix + self._shown(key))

    def _shown(self, key: object) -> str:
        """Return the name that a key is counted by; clients cannot create unlimited counters."""
        # A key that is no plain name may even break the status file's JSON.
        if not isinstance(key, str) or not (key.isascii() and key.isidentifier()):
            return OTHER_KEYS
        if key in KEYS or key in self._unknown:
            return key
        if len(self._unknown) >= MAX_UNKNOWN_KEYS or len(key) > MAX_KEY_CHARACTERS:
            return OTHER_KEYS
        self._unknown.add(key)
        return key

    def _task_number(self, label: object) -> int | None:
        if not isinstance(label, str) or not 0 < len(label) <= MAX_TASK_CHARACTERS:
            return None
        known = self._tasks.knows(label)
        number = self._tasks.of(label)
        if not known:
            self._named(number, label)
        return number


class FlatHints(HintParser):
    """Reader of flat keys among others, such as ``adaptive_spec_k_cap``."""

    prefix = f"{KEY}_"

    def read(self, parameters: Mapping[str, object] | None) -> Hints:
        """Return the hints among a request's extra parameters."""
        if not parameters:
            return NO_HINTS
        prefix = self.prefix
        given = [
            (key.removeprefix(prefix), value)
            for key, value in parameters.items()
            if isinstance(key, str) and key.startswith(prefix)
        ]
        return self.parse(given) if given else NO_HINTS


class NestedHints(HintParser):
    """Reader of one dict of scalars among others: ``{"adaptive_spec": {"k_cap": 2}}``."""

    prefix = f"{KEY}."

    def read(self, parameters: object) -> Hints:
        """Return the hints among a request's custom parameters."""
        if not isinstance(parameters, Mapping) or KEY not in parameters:
            return NO_HINTS
        given = parameters[KEY]
        if not isinstance(given, Mapping):
            self._ignored(KEY)
            return NO_HINTS
        return self.parse(given.items())


def _number(value: object) -> float | None:
    """Convert to a finite float; None for a boolean, for other types and on overflow."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _count(value: object) -> int | None:
    number = _number(value)
    if number is None or number < 0 or not number.is_integer():
        return None
    return min(int(number), NO_CAP)


def _flag(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    number = _number(value)
    return bool(number) if number in (0.0, 1.0) else None


def _seconds(value: object) -> float | None:
    number = _number(value)
    return number / 1e3 if number is not None and number >= LEAST_TPOT_MS else None
