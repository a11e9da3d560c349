"""What our server writes about itself once a second, and differences of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .arms import KMAX
from .errors import DemoError

MOST_FAIL_OPEN = 0.05
"""Share of steps with the engine's own K above which a run says nothing about ours."""


@dataclass(frozen=True)
class Totals:
    """Counts since a server started, or between two times.

    Attributes:
        steps: decisions.
        drafted, accepted: draft tokens verified, and accepted.
        emitted: tokens emitted in decoding steps.
        by_k: how often a request was verified with K = 0, 1, ... drafts.
    """

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    by_k: tuple[int, ...] = (0,) * (KMAX + 1)

    @classmethod
    def from_status(cls, status: dict[str, Any]) -> Self:
        """Out of a status object."""
        by_k = status["requests_by_k"]
        return cls(
            steps=status["steps"],
            drafted=status["verified_tokens"],
            accepted=status["accepted_tokens"],
            emitted=status["emitted_tokens"],
            by_k=tuple(by_k.get(str(k), 0) for k in range(KMAX + 1)),
        )

    def __sub__(self, earlier: Totals) -> Totals:
        return Totals(
            self.steps - earlier.steps,
            self.drafted - earlier.drafted,
            self.accepted - earlier.accepted,
            self.emitted - earlier.emitted,
            tuple(a - b for a, b in zip(self.by_k, earlier.by_k, strict=True)),
        )

    def __add__(self, more: Totals) -> Totals:
        return Totals(
            self.steps + more.steps,
            self.drafted + more.drafted,
            self.accepted + more.accepted,
            self.emitted + more.emitted,
            tuple(a + b for a, b in zip(self.by_k, more.by_k, strict=True)),
        )

    @property
    def mean_k(self) -> float:
        """Drafts verified per request and step."""
        return self.drafted / max(sum(self.by_k), 1)

    @property
    def acceptance(self) -> float | None:
        """Accepted of the drafts verified; None if none was."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each K among requests and steps."""
        total = max(sum(self.by_k), 1)
        return tuple(count / total for count in self.by_k)


def read_status(path: Path) -> dict[str, Any] | None:
    """The newest status, None if there is none yet."""
    try:
        status: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return status


def require_sound(status: dict[str, Any] | None) -> list[str]:
    """Faults of the plugin in this run, as lines for people.

    Raises DemoError if so many steps ran the engine's own K that figures would not be ours.
    """
    if status is None:
        raise DemoError("our server has written no status file")
    faults = [f"{kind}: {count} times" for kind, count in status["fail_opens"].items()]
    steps = status["steps_by_mode"]
    if steps.get("engine", 0) > MOST_FAIL_OPEN * sum(steps.values()):
        raise DemoError(
            f"{steps['engine']} of {sum(steps.values())} steps ran the engine's own K, because "
            f"adaptive-spec failed ({'; '.join(faults) or 'benched'}): figures would not be its own"
        )
    return faults


def mode_of(status: dict[str, Any], earlier: dict[str, Any] | None) -> str:
    """The mode most steps ran in since an earlier status."""
    now = status["steps_by_mode"]
    before = earlier["steps_by_mode"] if earlier else {}
    grown = {mode: count - before.get(mode, 0) for mode, count in now.items()}
    return max(grown, key=lambda mode: grown[mode], default="")
