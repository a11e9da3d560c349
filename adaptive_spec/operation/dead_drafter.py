"""A drafter whose drafts are hardly ever accepted, whatever yesterday was: wrong weights, mostly.

The bounds are those of the alert `AdaptiveSpecDrafterDead` (dashboards/alerts.yml), which needs a
Prometheus: more than 100 drafts verified in an hour or longer, fewer than 5 % of them accepted. A
policy stops such a drafter, so only its probes are counted, and an hour may not bring 100 of them.
Nothing is done about it here: windows are counted as an event, and the log tells the first of them.
"""

from __future__ import annotations

import logging

_EVENT = "drafter_dead"
_LEAST_DRAFTS, _LEAST_SECONDS = 100, 3600.0
"""A window ends with the first count beyond both."""
_DEAD = 0.05


class DeadDrafter:
    """Judges the drafts of a server, window after window.

    Args:
        logger: told of the first dead window, and of the first behind a living one.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger
        self._verified = self._accepted = 0
        self._began: float | None = None
        self._dead = False
        self.count = 0

    def counted(self, verified: int, accepted: int, now: float) -> None:
        """Add drafts; `now` in seconds of a monotonic clock."""
        if self._began is None:
            self._began = now
        self._verified += verified
        self._accepted += accepted
        if self._verified <= _LEAST_DRAFTS or now - self._began < _LEAST_SECONDS:
            return
        was, self._dead = self._dead, self._accepted < _DEAD * self._verified
        self.count += self._dead
        if self._dead and not was:
            self._log.warning(
                "adaptive_spec: %d of %d drafts were accepted in %.1f hours: the drafter does not "
                "fit the model, or its weights were not loaded; further hours are only counted "
                "(event %s)",
                self._accepted,
                self._verified,
                (now - self._began) / 3600.0,
                _EVENT,
            )
        self._verified = self._accepted = 0
        self._began = now

    def events(self) -> dict[str, int]:
        """Return how many windows were dead, if one was."""
        return {_EVENT: self.count} if self.count else {}
