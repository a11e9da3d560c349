"""The operator's switch, a number for SGLang's own route."""

from collections import Counter
from typing import Any

import pytest
from policies_for_tests import RecordingPolicy
from scheduler_loop import LADDER, Loop

from adaptive_spec.adapters.sglang.runtime_switch import KEY, set_internal_state
from adaptive_spec.config import Config


class SetRequest:
    def __init__(self, **values: Any) -> None:
        self.server_args = values


class Answer:
    def __init__(self, updated: bool) -> None:
        self.updated = updated


def test_the_switch_takes_its_key_and_leaves_the_rest_to_sglang() -> None:
    loop = Loop()
    driver = loop.attach(RecordingPolicy(), config=Config(mode="on"))
    assert driver.controller is not None
    seen = []

    def own(request: Any) -> Answer:
        seen.append(dict(request.server_args))
        return Answer(KEY not in request.server_args and "bad" not in request.server_args)

    request = SetRequest(**{KEY: 1, "other": 3})
    assert set_internal_state(own, request, driver).updated
    assert seen == [{"other": 3}]
    assert request.server_args == {KEY: 1, "other": 3}
    assert driver.controller.mode == "shadow"
    assert set_internal_state(own, SetRequest(**{KEY: 2.0}), driver).updated
    assert driver.controller.mode == "on"
    assert not set_internal_state(own, SetRequest(**{KEY: 5}), driver).updated
    assert not set_internal_state(own, SetRequest(**{KEY: 0, "bad": 1}), driver).updated
    assert driver.controller.mode == "on"
    assert not set_internal_state(own, SetRequest(**{KEY: 0}), None).updated


def test_where_we_may_only_watch_the_switch_does_not_steer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop()
    shadow = Config(mode="shadow")
    driver = loop.attach(RecordingPolicy(), config=shadow, watching=True, only_watch="graphs")
    stock = Loop()
    assert driver.controller is not None

    def own(request: Any) -> Answer:
        return Answer(KEY not in request.server_args)

    assert not set_internal_state(own, SetRequest(**{KEY: 2}), driver).updated
    assert "stays shadow, not tested with: graphs" in caplog.text
    assert driver.controller.mode == "shadow"
    driver.set_mode("on")
    for each in (loop, stock):
        each.run(100)
    assert loop.history == stock.history
    assert set_internal_state(own, SetRequest(**{KEY: 0}), driver).updated
    assert driver.controller.mode == "off"


def test_a_switch_that_fails_leaves_the_request_to_sglang(caplog: pytest.LogCaptureFixture) -> None:
    driver = Loop().attach(RecordingPolicy())
    broken: Any = object()
    asked = []

    def own(request: Any) -> Answer:
        asked.append(request)
        return Answer(updated=True)

    assert set_internal_state(own, broken, driver).updated
    assert asked == [broken]
    assert len(caplog.messages) == 1
    assert driver.controller.mode == "on"


def test_shadow_share_runs_other_k_in_blocks_and_counts_them() -> None:
    def ran(share: float) -> tuple[Loop, Counter[tuple[str, str]]]:
        loop = Loop(seed=3)
        driver = loop.attach(RecordingPolicy(), config=Config(mode="shadow", shadow_share=share))
        loop.run(2_000)
        return loop, driver.controller.counters.reasons

    stock = Loop(seed=3)
    stock.run(2_000)
    watched, reasons = ran(0.0)
    assert watched.history == stock.history
    assert not any("shadow tries" in reason for _, reason in reasons)
    shared, reasons = ran(0.5)
    tried = sum(count for (_, reason), count in reasons.items() if "shadow tries" in reason)
    assert 0.35 < tried / sum(reasons.values()) < 0.65
    assert {k for _, k in shared.history} == set(LADDER)
