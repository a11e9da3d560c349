"""Retries with back-off: an output that failed is tried again, less and less often, for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0


class Retry:
    """Output of the process that is tried again after failures, such as the status file.

    No method raises. The first failure of an outage is logged, and so is its end.

    Args:
        output: name of the output, for the log and the counter.
        count: called with the name at each failure.
        logger: logger of the engine.
    """

    def __init__(self, output: str, count: Callable[[str], None], logger: logging.Logger) -> None:
        self._output = output
        self._count = count
        self._log = logger
        self._wait = 0.0
        self._next = 0.0

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._wait > 0

    def due(self, now: float) -> bool:
        """Whether an attempt is allowed at `now` (seconds, monotonic); a clock may jump back."""
        return not self.failing or not 0 < self._next - now <= self._wait

    def attempt(self, now: float, action: Callable[[], object]) -> bool:
        """Run the action if it is due; return whether it succeeded."""
        if not self.due(now):
            return False
        try:
            action()
        except Exception as error:
            self.failed(now, error)
            return False
        if self.failing:
            self._log.warning("adaptive_spec: %s: works again", self._output)
            self._wait = 0.0
        return True

    def failed(self, now: float, error: Exception) -> None:
        """Count a failure of the output and put off the next attempt."""
        self._count(self._output)
        if not self.failing:
            self._log.warning(
                "adaptive_spec: %s: %s: %s; tried again every %.0f to %.0f s, serving goes on",
                self._output,
                type(error).__name__,
                error,
                _FIRST_SECONDS,
                _LONGEST_SECONDS,
            )
        self._wait = min(2 * self._wait, _LONGEST_SECONDS) or _FIRST_SECONDS
        self._next = now + self._wait
