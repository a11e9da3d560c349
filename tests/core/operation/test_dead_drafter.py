"""A drafter that is dead, from the start or later, is told once in the log."""

import logging
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml

from adaptive_spec.controller.plan_validation import engine_plan
from adaptive_spec.operation import dead_drafter as module
from adaptive_spec.operation.dead_drafter import DeadDrafter
from adaptive_spec.operation.status import Counters
from tests.core.controller.answers import context, outcome

HOUR = 3600.0
ALERTS = Path(__file__).parents[3] / "dashboards/alerts.yml"


class Server:
    """Counts minute after minute."""

    def __init__(self) -> None:
        self.dead = DeadDrafter(logging.getLogger("test"))
        self.now = 5000.0

    def serve(self, *accepted: int) -> None:
        """Let an hour of 244 drafts have so many accepted ones, for each entry."""
        for each in accepted:
            for minute in range(61):
                now = self.now + 60.0 * minute
                self.dead.counted(4, each // 61 + (minute < each % 61), now)
            self.now += HOUR


def test_a_drafter_that_is_dead_from_the_start_is_told_once_and_counted(caplog) -> None:
    server = Server()
    server.serve(3, 3, 3, 3, 3)
    assert len(caplog.messages) == 1
    assert re.search(r"3 of 244 drafts were accepted in 1\.0 hours", caplog.messages[0])
    assert server.dead.events() == {"drafter_dead": 5}


def test_it_is_told_again_after_it_has_recovered(caplog) -> None:
    server = Server()
    server.serve(100, 0, 0, 100, 0)
    assert len(caplog.messages) == 2
    assert server.dead.events() == {"drafter_dead": 3}


def test_a_drafter_that_is_right_one_time_in_twenty_is_not_dead(caplog) -> None:
    server = Server()
    server.serve(13, 13, 13)
    assert not caplog.messages
    assert server.dead.events() == {}


def test_few_drafts_and_short_times_are_not_judged() -> None:
    dead = DeadDrafter(logging.getLogger("test"))
    dead.counted(100, 0, 0.0)
    dead.counted(0, 0, 9 * HOUR)
    assert dead.events() == {}
    dead.counted(1, 0, 9 * HOUR)
    assert dead.events() == {"drafter_dead": 1}
    dead.counted(10_000, 0, 10 * HOUR - 1.0)
    assert dead.events() == {"drafter_dead": 1}


def test_a_servers_own_counters_say_it(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters(logging.getLogger("test"))
    for step in range(160):
        found = outcome(step)
        none = np.zeros_like(found.accepted)
        found = msgspec.structs.replace(found, accepted=none, now=60.0 * step)
        counters.count_outcome(found, engine_plan(context(step)))
    status = counters.snapshot()
    assert status["verified_tokens"] > 100
    assert status["events"]["drafter_dead"] == 2
    assert sum("0 of" in message for message in caplog.messages) == 1


def test_the_bounds_are_those_of_the_alert() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    (rule,) = [
        rule
        for group in groups
        for rule in group["rules"]
        if rule.get("alert") == "AdaptiveSpecDrafterDead"
    ]
    assert f"< {module._DEAD} *" in " ".join(rule["expr"].split())
    assert f"> {module._LEAST_DRAFTS})" in rule["expr"]
    assert rule["for"] == f"{module._LEAST_SECONDS / HOUR:.0f}h"
