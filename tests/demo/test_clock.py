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


def test_time_left_follows_how_slow_the_last_stage_of_work_was() -> None:
    time = Time()
    expected = {"servers": 40.0, "act one": 30.0, "act two": 60.0}
    clock = Clock(expected, timed=("act one",), now=time)
    assert clock.left() == "about 2 min"
    with clock.stage("servers", "starting"):
        time.now += 120.0
    assert clock.seconds == {"servers": 120.0}
    assert clock.left() == "about 4 min"
    with clock.stage("act one", "up and down"):
        time.now += 30.0
    assert clock.left() == "about 3 min"


def test_time_left_of_a_stage_follows_the_part_of_it_that_is_over() -> None:
    time = Time()
    clock = Clock({"act two": 60.0}, now=time)
    with clock.stage("act two", "three repeats"):
        time.now += 250.0
        clock.share_done(1 / 3)
        assert clock.left() == "about 8 min"
        time.now += 200.0
        assert clock.left() == "about 5 min"
    assert clock.left() == "about 0 s"


def test_time_left_says_seconds_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock({"picture": 2.0}, now=Time())
    with clock.stage("picture", "drawing"):
        pass
    assert capsys.readouterr().out == "[   0 s] drawing; about 2 s left\n"


def test_the_quick_demo_is_expected_to_take_less_than_two_minutes() -> None:
    phases = [(1, 6.0), (4, 6.0), (16, 10.0), (4, 6.0), (1, 6.0)]
    quick = sum(expected_seconds(parse(["--quick"]), phases).values())
    assert quick < 120.0
    assert sum(expected_seconds(parse([]), phases).values()) > 3 * quick
