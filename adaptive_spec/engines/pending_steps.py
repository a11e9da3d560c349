"""Launched engine steps whose results have not arrived, oldest first.

Results arrive in launch order, but some steps never report: they ran nothing or a fault dropped
them. The adapter therefore matches results to a step by facts of both and drops the steps before
the match.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

_Step = TypeVar("_Step")


class PendingSteps(deque[_Step]):
    """The adapter's own records of the steps under way, such as the engine's output objects.

    A launched step is appended. The results of the first are due next.
    """

    def take(self, matches: Callable[[_Step], bool]) -> _Step | None:
        """Remove and return the oldest step that matches the results; drop the steps before it.

        Args:
            matches: whether the arrived results belong to a step.

        Returns None and changes nothing if no step matches.
        """
        for place, step in enumerate(self):
            if matches(step):
                for _ in range(place + 1):
                    self.popleft()
                return step
        return None

    def keep(self, count: int) -> None:
        """Drop all but the youngest `count` steps."""
        while len(self) > count:
            self.popleft()
