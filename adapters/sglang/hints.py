"""Per-request hints: one dict of scalars, ``custom_params["adaptive_spec"]``.

============  ===========================================================
``k_cap``     integer >= 0: drafts beyond this count for nothing here
``off``       0 or 1 (or a boolean): no speculation for this request
``tpot_ms``   number > 0: milliseconds per output token asked for
``task``      text of at most 64 characters: task label
============  ===========================================================

SGLang runs one K for the whole batch, so a cap takes a request out of what speaks for a larger K;
it can't shield one request from the K that the others run. A batch in which all are capped runs
no more than the largest of their caps.

A bad value is ignored and counted; the request is answered as if the key were absent. SGLang's
IPC carries a dict of scalars in `custom_params`, nothing nested deeper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

KEY = "adaptive_spec"
MAX_TASKS = 64
MAX_TASK_CHARACTERS = 64
NO_CAP = 1 << 30
_KEYS = ("k_cap", "off", "tpot_ms", "task")


class Hints(NamedTuple):
    """What a request asked for.

    Attributes:
        draft_cap: most drafts that count per step; `NO_CAP` without a cap.
        tpot_seconds: seconds per output token asked for; inf if none.
        task: number of the task label; -1 without one.
    """

    draft_cap: int = NO_CAP
    tpot_seconds: float = math.inf
    task: int = -1


NO_HINTS = Hints()


class HintReader:
    """Reads hints; keeps the bounded table of task labels of this process."""

    def __init__(self, ignored: Callable[[str], None]) -> None:
        """`ignored` is told the key of every value that could not be used."""
        self._ignored = ignored
        self._tasks: dict[str, int] = {}

    def read(self, custom_params: object) -> Hints:
        """The hints among a request's custom parameters."""
        if not isinstance(custom_params, Mapping) or KEY not in custom_params:
            return NO_HINTS
        given = custom_params[KEY]
        if not isinstance(given, Mapping):
            self._ignored(KEY)
            return NO_HINTS
        cap, tpot, task = NO_CAP, math.inf, -1
        for key, value in given.items():
            usable = True
            if key == "k_cap" and _is_count(value):
                cap = min(cap, int(value))
            elif key == "off" and (isinstance(value, bool) or (_is_count(value) and value <= 1)):
                cap = 0 if value else cap
            elif key == "tpot_ms" and _is_number(value) and value > 0:
                tpot = float(value) / 1e3
            elif key == "task" and isinstance(value, str):
                task = self._task_number(value)
                usable = task >= 0
            else:
                usable = False
            if not usable:
                # Clients choose the names: an unknown one must not become a counter of its own.
                self._ignored(f"{KEY}.{key if key in _KEYS else 'unknown key'}")
        return Hints(cap, tpot, task)

    def _task_number(self, label: str) -> int:
        """A label's number; -1 if it is empty, too long, or one label too many."""
        if not 0 < len(label) <= MAX_TASK_CHARACTERS:
            return -1
        if label not in self._tasks and len(self._tasks) < MAX_TASKS:
            self._tasks[label] = len(self._tasks)
        return self._tasks.get(label, -1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and float(value).is_integer()
