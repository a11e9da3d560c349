"""What failed is tried again, less and less often, and whatever the clock does."""

import itertools
import logging

import pytest

from adaptive_spec.operation.output_file import Retry

LOG = logging.getLogger("test")


def fails() -> None:
    raise OSError(28, "No space left on device")


def test_attempts_get_rarer_and_never_stop(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    retry = Retry("status file", counted.append, LOG)
    tried: list[int] = []
    for now in range(1000):
        retry.attempt(float(now), lambda now=now: (tried.append(now), fails()))
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert gaps == sorted(gaps)
    assert gaps[0] <= 2
    assert max(gaps) <= 61
    assert tried[-1] > 900
    assert counted == ["status file"] * len(tried)
    assert len(caplog.records) == 1
    assert retry.attempt(2000.0, list)
    assert retry.attempt(2000.0, list)
    assert caplog.messages[1:] == ["adaptive_spec: status file: works again"]


@pytest.mark.parametrize("later", [-1e6, 1e6])
def test_a_clock_that_jumps_does_not_stop_it(later: float) -> None:
    retry = Retry("trace", lambda _: None, LOG)
    retry.attempt(100.0, fails)
    assert retry.attempt(later, list)
