from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any

import pytest

from benchmarks.vllm_cpu.errors import BenchmarkError
from benchmarks.vllm_overhead.own_code import (
    SCHEDULER_SIDE,
    WORKER_SIDE,
    Removable,
    Stopwatch,
    is_ours,
)


class Scheduler:
    """vLLM's."""

    def schedule(self) -> str:
        return "vllm"


class Mixin:
    def schedule(self) -> str:
        return "ours"


class AdaptiveScheduler(Mixin, Scheduler):
    """Ours."""


Scheduler.__module__ = "vllm.v1.scheduler"
AdaptiveScheduler.__module__ = Mixin.__module__ = "adaptive_spec.adapters.vllm.hooks"


class Drafter:
    def propose(self) -> str:
        return "vllm"


def ours() -> Any:
    """A function that adaptive_spec defines."""
    scope = {"__name__": "adaptive_spec.adapters.vllm.fake_module"}
    return FunctionType((lambda *_: "ours").__code__, scope)


def test_classes_and_attributes_of_ours_are_taken_off_and_put_back() -> None:
    scheduler, drafter = AdaptiveScheduler(), Drafter()
    scheduler.kept = 7  # type: ignore[attr-defined]
    drafter.propose = ours()  # type: ignore[method-assign]
    removable = Removable((scheduler, drafter), ())
    assert removable.names == ["AdaptiveScheduler", "Drafter.propose"]
    for _ in range(2):
        removable.take_off()
        removable.take_off()
        assert (scheduler.schedule(), drafter.propose()) == ("vllm", "vllm")
        removable.put_back()
        removable.put_back()
        assert (scheduler.schedule(), drafter.propose()) == ("ours", "ours")
    assert scheduler.kept == 7  # type: ignore[attr-defined]


def test_wrapped_methods_of_a_class_get_vllms_own_back(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper, original = ours(), Drafter.propose
    wrapper.__wrapped__ = original
    monkeypatch.setattr(Drafter, "propose", wrapper)
    removable = Removable((), (Drafter,))
    removable.take_off()
    assert Drafter.propose is original
    removable.put_back()
    assert Drafter.propose is wrapper


def test_what_others_defined_is_not_ours() -> None:
    assert is_ours(ours())
    assert not is_ours(Drafter().propose)
    assert not is_ours(7)


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
        pytest.raises(BenchmarkError, match=f"{name} is not there any more"),
        Stopwatch().watching(["json:dumps", name]),
    ):
        raise AssertionError("not reached")
    assert json.dumps is dumps


def test_what_is_timed_exists() -> None:
    with Stopwatch().watching([*SCHEDULER_SIDE, *WORKER_SIDE]):
        pass
