"""What our server writes about itself once a second, and differences of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from .command import KMAX
from .errors import DemoError

MOST_FAIL_OPEN = 0.05
"""Share of steps with the engine's own K above which a run says nothing about ours."""


def counts_of(status: dict[str, Any]) -> Counter[str]:
    """Counts since a server started; those of a time are differences.

    ``steps``: decisions. ``drafted``, ``accepted``: draft tokens verified, and accepted.
    ``emitted``: tokens emitted in decoding steps. ``0``, ``1``, ...: how often a request was
    verified with so many drafts.
    """
    return Counter(
        steps=status["steps"],
        drafted=status["verified_tokens"],
        accepted=status["accepted_tokens"],
        emitted=status["emitted_tokens"],
        **status["requests_by_k"],
    )


def mean_k(counts: Counter[str]) -> float:
    """Drafts verified per request and step."""
    return counts["drafted"] / max(sum(counts[str(k)] for k in range(KMAX + 1)), 1)


def k_of_drafting(counts: Counter[str]) -> float | None:
    """Drafts verified per request and step, where any were; None if none was."""
    drafting = sum(counts[str(k)] for k in range(1, KMAX + 1))
    return counts["drafted"] / drafting if drafting else None


def acceptance(counts: Counter[str]) -> float | None:
    """Accepted of the drafts verified; None if none was."""
    return counts["accepted"] / counts["drafted"] if counts["drafted"] else None


def shares(counts: Counter[str]) -> list[float]:
    """Share of each K among requests and steps."""
    by_k = [counts[str(k)] for k in range(KMAX + 1)]
    return [count / max(sum(by_k), 1) for count in by_k]


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


def mode_of(status: dict[str, Any], earlier: dict[str, Any]) -> str:
    """The mode most steps ran in since an earlier status."""
    now = status["steps_by_mode"]
    before = earlier.get("steps_by_mode", {})
    grown = {mode: count - before.get(mode, 0) for mode, count in now.items()}
    return max(grown, key=lambda mode: grown[mode], default="")
