from __future__ import annotations

import sys
from types import ModuleType

import pytest

from benchmarks.gpu.own_code import SCHEDULER_SIDE, Stopwatch


def test_functions_are_timed_only_while_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("fake_module")
    function = vars(module)["work"] = lambda count: sum(range(count))
    monkeypatch.setitem(sys.modules, "fake_module", module)
    stopwatch = Stopwatch()
    with stopwatch.watching(["fake_module:work"]):
        assert vars(module)["work"](1000) == 499500
    assert vars(module)["work"] is function
    assert set(stopwatch.seconds) == set(stopwatch.processor) == {"work"}
    assert stopwatch.seconds["work"] > 0
    stopwatch.reset()
    assert not stopwatch.seconds


@pytest.mark.parametrize("name", ["missing_module:work", "json:work", "json:JSONDecoder.work"])
def test_a_function_that_is_gone_is_named_and_nothing_stays_wrapped(name: str) -> None:
    import json

    dumps = json.dumps
    with (
        pytest.raises(LookupError, match=f"{name} is not there any more"),
        Stopwatch().watching(["json:dumps", name]),
    ):
        raise AssertionError("not reached")
    assert json.dumps is dumps


def test_what_is_timed_exists() -> None:
    with Stopwatch().watching(SCHEDULER_SIDE):
        pass
