"""Per-request hints from `vllm_xargs` (offline: `SamplingParams.extra_args`), flat keys.

============================  ===========================================================
``adaptive_spec_k_cap``       integer >= 0: never verify more drafts than this
``adaptive_spec_off``         0 or 1: no speculation for this request
``adaptive_spec_tpot_ms``     number > 0: milliseconds per output token asked for
``adaptive_spec_task``        text of at most 64 characters: task label
============================  ===========================================================

A bad value is ignored and counted; the request is answered as if the key were absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PREFIX = "adaptive_spec_"
MAX_TASKS = 64
MAX_TASK_CHARACTERS = 64
NO_CAP = 1 << 30


class Hints(NamedTuple):
    """What a request asked for.

    Attributes:
        draft_cap: most drafts to verify per step; `NO_CAP` without a cap.
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

    def read(self, extra_args: Mapping[str, Any] | None) -> Hints:
        """The hints among a request's extra arguments."""
        if not extra_args:
            return NO_HINTS
        given = {key: value for key, value in extra_args.items() if key.startswith(PREFIX)}
        if not given:
            return NO_HINTS
        cap, tpot, task = NO_CAP, math.inf, -1
        for key, value in given.items():
            usable = True
            if key == "adaptive_spec_k_cap" and _is_integer(value) and value >= 0:
                cap = min(cap, int(value))
            elif key == "adaptive_spec_off" and _is_integer(value) and value in (0, 1):
                cap = 0 if value else cap
            elif key == "adaptive_spec_tpot_ms" and _is_number(value) and value > 0:
                tpot = float(value) / 1e3
            elif key == "adaptive_spec_task" and isinstance(value, str):
                task = self._task_number(value)
                usable = task >= 0
            else:
                usable = False
            if not usable:
                self._ignored(key)
        return Hints(cap, tpot, task)

    def _task_number(self, label: str) -> int:
        """A label's number; -1 if it is empty, too long, or one label too many."""
        if not 0 < len(label) <= MAX_TASK_CHARACTERS:
            return -1
        if label not in self._tasks and len(self._tasks) < MAX_TASKS:
            self._tasks[label] = len(self._tasks)
        return self._tasks.get(label, -1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: object) -> bool:
    return _is_number(value) and (isinstance(value, int) or float(str(value)).is_integer())
