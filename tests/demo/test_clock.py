from __future__ import annotations

import pytest

from demo.clock import Clock
from demo.options import parse
from demo.run import expected_seconds


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_left_follows_what_is_over_and_how_slow_it_was() -> None:
    time = Time()
    clock = Clock({"servers": 40.0, "act one": 30.0, "act two": 60.0}, time)
    assert clock.left() == "about 2 min"
    with clock.stage("servers", "starting"):
        time.now += 80.0
    assert clock.seconds == {"servers": 80.0}
    assert clock.left() == "about 3 min"
    with clock.stage("act one", "up and down"):
        time.now += 30.0
    assert clock.left() == "about 2 min"


def test_time_left_says_seconds_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock({"picture": 2.0}, Time())
    with clock.stage("picture", "drawing"):
        pass
    assert capsys.readouterr().out == "[   0 s] drawing; about 2 s left\n"


def test_the_quick_demo_is_expected_to_take_less_than_two_minutes() -> None:
    phases = [(1, 6.0), (4, 6.0), (16, 10.0), (4, 6.0), (1, 6.0)]
    quick = sum(expected_seconds(parse(["--quick"]), phases).values())
    assert quick < 120.0
    assert sum(expected_seconds(parse([]), phases).values()) > 3 * quick
