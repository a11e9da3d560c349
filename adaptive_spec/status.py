"""Counters of one process, and the status file they are shown in."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.values import SpecPlan, StepOutcome

_REFRESH_SECONDS = 1.0


class Counters:
    """What happened since start-up."""

    def __init__(self) -> None:
        self.steps = 0
        self.drafted = 0
        self.accepted = 0
        self.emitted = 0
        self.modes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.ignored_hints: Counter[str] = Counter()
        self.verified_k: Counter[int] = Counter()
        self._decision_seconds = 0.0
        self._decisions = 0
        self._slowest = 0.0
        self._last: SpecPlan | None = None

    def plan(self, plan: SpecPlan) -> None:
        """Count a decision."""
        self.steps += 1
        self.modes[plan.mode.value] += 1
        self._last = plan

    def outcome(self, outcome: StepOutcome) -> None:
        """Count what a step did."""
        self.drafted += int(outcome.verified.sum())
        self.accepted += int(outcome.accepted.sum())
        self.emitted += int(outcome.emitted.sum())
        for k, count in enumerate(np.bincount(outcome.verified).tolist()):
            if count:
                self.verified_k[k] += count

    def failed(self, kind: str) -> None:
        """Count a fail-open."""
        self.failures[kind] += 1

    def ignored_hint(self, key: str) -> None:
        """Count a request's hint that could not be used."""
        self.ignored_hints[key] += 1

    def decision_seconds(self, seconds: float) -> None:
        """Count the time one decision took."""
        self._decision_seconds += seconds
        self._decisions += 1
        self._slowest = max(self._slowest, seconds)

    def snapshot(self) -> dict[str, Any]:
        """JSON-compatible copy."""
        last = self._last
        return {
            "steps": self.steps,
            "verified_tokens": self.drafted,
            "accepted_tokens": self.accepted,
            "emitted_tokens": self.emitted,
            "steps_by_mode": dict(self.modes),
            "requests_by_k": {str(k): n for k, n in sorted(self.verified_k.items())},
            "fail_opens": dict(self.failures),
            "ignored_hints": dict(self.ignored_hints),
            "decision_us_mean": round(1e6 * self._decision_seconds / max(self._decisions, 1), 1),
            "decision_us_max": round(1e6 * self._slowest, 1),
            "last_reason": last.reason if last else "",
            "last_depth": last.draft_depth if last else 0,
        }


class StatusFile:
    """Writes a status object to a file about once a second, whole or not at all."""

    def __init__(self, path: Path | None, logger: logging.Logger) -> None:
        self._path = path
        self._log = logger
        self._next = 0.0

    @classmethod
    def from_config(cls, name: str | None, logger: logging.Logger) -> StatusFile:
        """From the configured name; `{pid}` becomes this process's id."""
        path = Path(name.replace("{pid}", str(os.getpid()))) if name else None
        return cls(path, logger)

    def refresh(self, now: float, status: Callable[[], dict[str, Any]]) -> None:
        """Write if the last time is long enough ago."""
        if self._path is None or 0 <= self._next - now <= _REFRESH_SECONDS:
            return
        self._next = now + _REFRESH_SECONDS
        self.write(status())

    def write(self, status: dict[str, Any]) -> None:
        """Write now. A disk that fails turns the file off, said once."""
        if self._path is None:
            return
        temporary = self._path.with_name(self._path.name + ".new")
        try:
            temporary.write_bytes(msgspec.json.encode(status))
            temporary.replace(self._path)
        except OSError as error:
            self._log.warning("adaptive_spec: status file off: %s", error)
            self._path = None
