"""Hooks that never raise."""

import logging

import pytest

from adaptive_spec.engines.fail_open import Guarded, fail_open

LOG = logging.getLogger("adaptive_spec.test_fail_open")


class Recorder:
    """Takes faults as a controller does; may itself be broken."""

    def __init__(self, *, broken: bool = False) -> None:
        self.faults: list[str] = []
        self._broken = broken

    def fault(self, what: str) -> None:
        if self._broken:
            raise OSError("disk is full")
        self.faults.append(what)


class Driver(Guarded):
    """Divides in a hook."""

    @fail_open
    def before(self, by: int) -> float:
        """Divide."""
        return 1 / by

    @fail_open
    def _propose(self) -> int:
        raise ValueError("planted")


def test_a_hook_returns_its_value_and_a_fault_is_none() -> None:
    recorder = Recorder()
    driver = Driver(recorder, LOG)
    assert driver.before(2) == 0.5
    assert driver.before(0) is None
    assert driver._propose() is None
    assert recorder.faults == [
        "hook before raised ZeroDivisionError: division by zero",
        "hook propose raised ValueError: planted",
    ]


def test_a_report_that_fails_does_not_get_out() -> None:
    assert Driver(Recorder(broken=True), LOG).before(0) is None


def test_without_a_controller_each_hook_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(None, LOG)
    with caplog.at_level(logging.ERROR, logger=LOG.name):
        for _ in range(3):
            driver.before(0)
        driver._propose()
    assert [message.split(" raised")[0] for message in caplog.messages] == [
        "adaptive_spec: hook before",
        "adaptive_spec: hook propose",
    ]
    recorder = Recorder()
    driver.report_to(recorder)
    driver.before(0)
    assert len(recorder.faults) == 1


def test_what_is_no_fault_of_ours_passes() -> None:
    class Stopping(Guarded):
        @fail_open
        def hook(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Stopping(Recorder(), LOG).hook()
