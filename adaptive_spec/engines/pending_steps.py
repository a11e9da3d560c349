"""Launched engine steps whose results have not arrived, oldest first.

Results arrive in launch order, but some steps never report: they ran nothing or a fault dropped
them. The adapter therefore matches results to a step by facts of both and drops the steps before
the match.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

_Step = TypeVar("_Step")


class PendingSteps(Generic[_Step]):
    """The adapter's own records of the steps under way, such as the engine's output objects."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[_Step]:
        return iter(self._steps)

    @property
    def oldest(self) -> _Step | None:
        """The step whose results are due next."""
        return self._steps[0] if self._steps else None

    @property
    def youngest(self) -> _Step | None:
        """The step launched last."""
        return self._steps[-1] if self._steps else None

    def launched(self, step: _Step) -> None:
        """Add a step."""
        self._steps.append(step)

    def take_oldest(self) -> None:
        """Remove the step whose results were due next."""
        self._steps.popleft()

    def take(self, matches: Callable[[_Step], bool]) -> _Step | None:
        """Remove and return the oldest step that matches the results; drop the steps before it.

        Args:
            matches: whether the arrived results belong to a step.

        Returns None and changes nothing if no step matches.
        """
        for place, step in enumerate(self._steps):
            if matches(step):
                for _ in range(place + 1):
                    self._steps.popleft()
                return step
        return None

    def keep(self, count: int) -> None:
        """Drop all but the youngest `count` steps."""
        while len(self._steps) > count:
            self._steps.popleft()
