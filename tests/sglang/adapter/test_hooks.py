"""The hooks never fail the engine, and are missed if SGLang has not applied them."""

import functools
import logging
import sys
import types
from typing import Any, ClassVar

import pytest
from policies_for_tests import RecordingPolicy
from scheduler_loop import Loop

from adaptive_spec.adapters.sglang import hooks, installation
from adaptive_spec.adapters.sglang.attach import Attached
from adaptive_spec.adapters.sglang.hooks import contained
from adaptive_spec.adapters.sglang.installation import Hook
from adaptive_spec.adapters.sglang.settings import Settings
from adaptive_spec.config import Config


def test_a_hook_that_fails_is_said_once_and_returns_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks, "SHARED", hooks.Shared())

    @contained
    def hook(value: int) -> None:
        raise ValueError("planted")

    with caplog.at_level(logging.ERROR):
        for _ in range(50):
            assert hook(1) is None
    assert caplog.messages == ["adaptive_spec: hook: ValueError: planted"]


def test_a_hook_that_fails_once_attached_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    driver = loop.attach(RecordingPolicy())
    monkeypatch.setattr(hooks, "SHARED", hooks.Shared())
    hooks.SHARED.attached = Attached(driver, loop.params)
    monkeypatch.setattr(driver, "applied", lambda batch: 1 / 0)
    for _ in range(3):
        hooks.after_process(None, loop, None)
    assert driver.controller.counters.failures == {"hook after_process raised ZeroDivisionError": 3}


def test_figures_that_fail_are_given_up_and_the_policy_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def step(self) -> None:
            raise OSError("no space left")

        def refresh(self, now: float) -> None:
            raise OSError("no space left")

    loop = Loop()
    broken: Any = Broken()
    attached = Attached(loop.attach(RecordingPolicy()), loop.params, trim=broken, metrics=broken)
    for now in range(10):
        attached.housekeeping(float(now))
    assert len(caplog.messages) == 2
    assert not attached.driver.controller.counters.failures


class Owner:
    def hooked(self) -> str:
        return "own"

    def plain(self) -> str:
        return "own"


class Registry:
    """Wraps as SGLang's registry does, what it is told to; forgets what it fails to wrap."""

    fails: ClassVar[set[str]] = set()
    asked: ClassVar[list[Hook]] = []

    @classmethod
    def apply_hooks(cls) -> None:
        for hook in cls.asked:
            name = hook.target.rpartition(".")[2]
            if name not in cls.fails:
                setattr(Owner, name, wrapped(getattr(Owner, name), hook.function))


def wrapped(function: Any, hook: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        hook(*args)
        return function(*args)

    return wrapper


@pytest.mark.parametrize("fails", [set(), {"hooked"}])
def test_hooks_that_sglang_did_not_apply_are_named_once_it_has_tried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: set[str]
) -> None:
    def ours(*args: Any) -> None: ...

    for name in ("hooked", "plain"):
        monkeypatch.setattr(Owner, name, vars(Owner)[name])
    targets = [f"{__name__}:Owner.{name}" for name in ("hooked", "plain")]
    monkeypatch.setattr(Registry, "asked", [Hook(target, ours, "BEFORE") for target in targets])
    monkeypatch.setattr(Registry, "fails", fails)
    monkeypatch.setattr(hooks, "SHARED", hooks.Shared())
    hooks.SHARED.settings = Settings(config=Config())
    own = vars(Registry)["apply_hooks"]
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, this_module()))
    installation._check_after(Registry, Registry.asked)
    with caplog.at_level(logging.ERROR):
        Registry.apply_hooks()
    assert vars(Registry)["apply_hooks"] is own
    if fails:
        assert "Owner.hooked" in caplog.text
        assert hooks.SHARED.settings is None
        assert hooks.SHARED.applied == "1/2"
    else:
        assert caplog.messages == []
        assert hooks.SHARED.settings is not None
        assert hooks.SHARED.applied == "2/2"


def this_module() -> Any:
    """pytest imports tests under names that cannot be imported again."""
    module = types.ModuleType(__name__)
    vars(module).update(globals())
    return module
