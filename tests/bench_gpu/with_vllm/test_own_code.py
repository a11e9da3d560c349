from __future__ import annotations

from benchmarks.judge.own_code import SCHEDULER_SIDE, Stopwatch


def test_what_is_timed_exists() -> None:
    with Stopwatch().watching(SCHEDULER_SIDE):
        pass
