"""Counters of one process, the status file that shows them, and ten minutes of history."""

from __future__ import annotations

import logging
import math
import os
import re
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError, described
from adaptive_spec.operation.dead_drafter import DeadDrafter
from adaptive_spec.operation.label_drift import LabelDrift
from adaptive_spec.operation.output_file import OwnedFile, Retry
from adaptive_spec.operation.plain import plain
from adaptive_spec.operation.stuck_requests import StuckRequests
from adaptive_spec.per_request import highest_of, sum_of
from adaptive_spec.policy import POLICY_ERRORS
from adaptive_spec.step import FinishedStep, IntArray, SpecPlan, StepContext, StepOutcome

_MEMORY_STEPS = 1000.0
"""Time constant of the exponential averages (steps)."""


class PredictionCheck:
    """Predicted and measured goodput: exponentially weighted sums over recent steps.

    A policy may predict the tokens and the duration of a step. Both sides sum the same steps:
    predicted steps with a measured duration and without prompts, whose time is the least
    predictable. Diverging sums mean that the policy decides by a wrong model of the engine.
    """

    def __init__(self) -> None:
        self._predicted_tokens = self._predicted_seconds = 0.0
        self._tokens = self._seconds = 0.0

    def finished(self, plan: SpecPlan, outcome: StepOutcome) -> None:
        """Add a step: the plan that ran and its outcome."""
        tokens, seconds = plan.predicted_tokens, plan.predicted_seconds
        if not (0.0 < tokens < math.inf and 0.0 < seconds < math.inf):
            return
        complete = len(outcome.slots) == outcome.batch_size
        if not complete or outcome.prefill_tokens or not 0.0 < outcome.seconds < math.inf:
            return
        keep = 1.0 - 1.0 / _MEMORY_STEPS
        self._predicted_tokens = keep * self._predicted_tokens + tokens
        self._predicted_seconds = keep * self._predicted_seconds + seconds
        self._tokens = keep * self._tokens + sum_of(outcome.emitted)
        self._seconds = keep * self._seconds + outcome.seconds

    def snapshot(self) -> dict[str, float]:
        """Return tokens per second, `predicted` and `measured`; empty without data."""
        if not self._seconds:
            return {}
        return {
            "predicted": self._predicted_tokens / self._predicted_seconds,
            "measured": self._tokens / self._seconds,
        }


_REFRESH_SECONDS = 1.0

DECISION_SECONDS = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2)
"""Upper bounds of the decision-time histogram (seconds); one more bucket takes longer times."""

_MOST_UNCOUNTED = 16
"""Most plans, and most outcomes, that wait to be counted (steps)."""
_MOST_REASONS = 32
_MOST_TASKS = 64
LOOKUP_COUNTS = ("found", "agreed", "verified", "accepted")
"""Drafts of the look-up: found, right (verified or not), verified, and accepted."""

OTHER = "other"
"""Name of all reasons beyond the first `_MOST_REASONS`."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Counters:
    """Counters since start-up.

    Plans and outcomes are counted sixteen at a time, because code runs many times faster while it
    is in the caches. `count` brings the attributes up to date.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._plans: list[tuple[IntArray, SpecPlan]] = []
        self._outcomes: list[tuple[StepOutcome, SpecPlan | None]] = []
        self._finished: list[FinishedStep] = []
        self.steps = 0
        self.drafted = 0
        self.verified = 0
        self.accepted = 0
        self.emitted = 0
        self.modes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[str] = Counter()
        self.ignored_hints: Counter[str] = Counter()
        self.output_failures: Counter[str] = Counter()
        self.verified_k: Counter[int] = Counter()
        self.accepted_k: Counter[int] = Counter()
        self.events: Counter[str] = Counter()
        self.task_names: dict[int, str] = {}
        """Task labels by number, as clients wrote them, the latest last."""
        self.by_task: dict[int, list[int]] = {}
        """Verified and accepted drafts by number of the task label, the last used last."""
        self.lookup = dict.fromkeys(LOOKUP_COUNTS, 0)
        self.predictions = PredictionCheck()
        self._log = logger or logging.getLogger(__name__)
        self._stuck = StuckRequests(self._log)
        self._drift = LabelDrift(self.task_names, self._log)
        self._dead = DeadDrafter(self._log)
        self._kind_of_reason: dict[str, str] = {}
        self._decision_seconds = 0.0
        self._decision_buckets = [0] * (len(DECISION_SECONDS) + 1)
        self._slowest = 0.0
        self._last: SpecPlan | None = None

    def count_plan(self, context: StepContext, plan: SpecPlan) -> None:
        """Count a decision and its available drafts."""
        self._plans.append((context.draft_available, plan))
        if len(self._plans) >= _MOST_UNCOUNTED:
            self._count_plans()

    def count_outcome(self, outcome: StepOutcome, plan: SpecPlan | None) -> None:
        """Count a step's results; `plan` is the plan that ran, None if unknown."""
        self._outcomes.append((outcome, plan))
        if len(self._outcomes) >= _MOST_UNCOUNTED:
            self._count_outcomes()

    def count_finished(self, step: FinishedStep) -> None:
        """Count the same by task label and source of drafts."""
        self._finished.append(step)
        if len(self._finished) >= _MOST_UNCOUNTED:
            self._count_finished()

    def ending(self, slots: IntArray) -> None:
        """Count the requests in these slots as ended."""
        self._stuck.ending(slots)
        self._drift.ending(slots)
        if not self._finished:  # the next block may have others in these slots
            self._stuck.finished(())
            self._drift.finished(())

    def count(self) -> None:
        """Count the plans and outcomes that have come since the last time."""
        self._count_plans()
        self._count_outcomes()
        self._count_finished()

    def _count_plans(self) -> None:
        plans, self._plans = self._plans, []
        for available, plan in plans:
            self.steps += 1
            self.drafted += sum_of(available)
            mode = plan.mode.value
            self.modes[mode] += 1
            self.kinds[plan.kind.value] += 1
            self.reasons[mode, self._reason(plan.reason)] += 1
            self._last = plan

    def _count_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if not outcomes:
            return
        before = self.verified, self.accepted
        verified = np.concatenate([outcome.verified for outcome, _ in outcomes])
        for k, count in enumerate(np.bincount(verified).tolist()):
            self.verified += k * count
            if count:
                self.verified_k[k] += count
        accepted = np.concatenate([outcome.accepted for outcome, _ in outcomes])
        for k, count in enumerate(np.bincount(accepted).tolist()):
            self.accepted += k * count
            if count:
                self.accepted_k[k] += count
        drafts = self.verified - before[0], self.accepted - before[1]
        self._dead.counted(*drafts, outcomes[-1][0].now)
        for outcome, plan in outcomes:
            self.emitted += sum_of(outcome.emitted)
            if plan is not None:
                self.predictions.finished(plan, outcome)

    def _count_finished(self) -> None:
        finished, self._finished = self._finished, []
        self._stuck.finished(finished)
        self._drift.finished(finished)
        for step in finished:
            self._tasks(step.context.task, step.outcome)
            self._sources(step)

    def _tasks(self, task: IntArray, outcome: StepOutcome) -> None:
        """Count verified and accepted drafts by task label; nothing without labels."""
        if highest_of(task) >= 0:
            each = zip(
                task.tolist(), outcome.verified.tolist(), outcome.accepted.tolist(), strict=True
            )
            for label, verified, accepted in each:
                if label >= 0:
                    counts = self.by_task.pop(label, [0, 0])
                    counts[0] += verified
                    counts[1] += accepted
                    self.by_task[label] = counts
            while len(self.by_task) > _MOST_TASKS:  # numbers of labels grow without end
                del self.by_task[next(iter(self.by_task))]

    def _sources(self, step: FinishedStep) -> None:
        """Count the drafts of the look-up; nothing where drafts have one source."""
        found, agreed = step.context.lookup_available, step.outcome.lookup_agreed
        if found is None or agreed is None:
            return
        counts = [found, np.minimum(agreed, found)]
        if step.plan.from_lookup is not None:
            taken = step.plan.from_lookup
            counts += [step.outcome.verified[taken], step.outcome.accepted[taken]]
        for name, values in zip(LOOKUP_COUNTS, counts, strict=False):
            self.lookup[name] += int(values.sum())

    def _reason(self, text: str) -> str:
        """Replace the numbers of a reason, which limits the number of distinct reasons."""
        kind = self._kind_of_reason.get(text)
        if kind is None:
            kind = _NUMBER.sub("#", text)
            known = {reason for _, reason in self.reasons}
            if kind not in known and len(known) >= _MOST_REASONS:
                kind = OTHER
            if len(self._kind_of_reason) >= 8 * _MOST_REASONS:
                self._kind_of_reason.clear()
            self._kind_of_reason[text] = kind
        return kind

    def name_task(self, number: int, label: str) -> None:
        """Keep the label behind a number; unprintable characters become question marks."""
        self.task_names[number] = "".join(c if c.isprintable() else "?" for c in label)
        while len(self.task_names) > 2 * _MOST_TASKS:
            del self.task_names[next(iter(self.task_names))]

    def _by_task_name(self) -> dict[str, list[int]]:
        """Return verified and accepted drafts by label; labels of other numbers add up."""
        named: dict[str, list[int]] = {}
        for number, (verified, accepted) in self.by_task.items():
            counts = named.setdefault(self.task_names.get(number, f"task {number}"), [0, 0])
            counts[0] += verified
            counts[1] += accepted
        return named

    def event(self, name: str, count: int = 1) -> None:
        """Count an adapter's event; few distinct names."""
        if count:
            self.events[name] += count

    def failed(self, fault: str) -> str:
        """Count a fault and return its kind, the text before the first colon; few kinds."""
        kind = fault.split(":", 1)[0]
        if kind not in self.failures and len(self.failures) >= _MOST_REASONS:
            kind = OTHER
        self.failures[kind] += 1
        return kind

    def output_failed(self, output: str) -> None:
        """Count a failure to write one of the outputs; the first words name it."""
        self.output_failures[output.split(" '", 1)[0]] += 1

    def ignored_hint(self, key: str) -> None:
        """Count a hint that is unknown, unusable or not honoured; log the first of each key."""
        if key not in self.ignored_hints:
            self._log.warning(
                "adaptive_spec: a request's hint %r is ignored: unknown, of an unusable value, or "
                "not allowed by `hints` of the configuration; further ones are only counted",
                key,
            )
        self.ignored_hints[key] += 1

    def decision_seconds(self, seconds: float) -> None:
        """Count the time one decision took."""
        self._decision_seconds += seconds
        self._decision_buckets[bisect_left(DECISION_SECONDS, seconds)] += 1
        self._slowest = max(self._slowest, seconds)

    def last_plan(self) -> SpecPlan | None:
        """Return the latest plan; None before the first."""
        return self._plans[-1][1] if self._plans else self._last

    def snapshot(self) -> dict[str, Any]:
        """Return a JSON-compatible copy."""
        self.count()
        last = self._last
        decisions = sum(self._decision_buckets)
        by_mode: dict[str, dict[str, int]] = {}
        for (mode, reason), count in self.reasons.items():
            by_mode.setdefault(mode, {})[reason] = count
        return {
            "steps": self.steps,
            "drafted_tokens": self.drafted,
            "verified_tokens": self.verified,
            "accepted_tokens": self.accepted,
            "emitted_tokens": self.emitted,
            "steps_by_mode": dict(self.modes),
            "reasons_by_mode": by_mode,
            "steps_by_kind": dict(self.kinds),
            "requests_by_k": {str(k): n for k, n in sorted(self.verified_k.items())},
            "requests_by_accepted": {str(k): n for k, n in sorted(self.accepted_k.items())},
            "drafts_by_task": self._by_task_name(),
            "lookup": dict(self.lookup),
            "fail_opens": dict(self.failures),
            "ignored_hints": dict(self.ignored_hints),
            "output_failures": dict(self.output_failures),
            "events": {
                **self.events,
                **self._stuck.events(),
                **self._drift.events(),
                **self._dead.events(),
            },
            "stuck_bounds": self._stuck.bounds(),
            "stuck_latest": dict(self._stuck.latest),
            "label_drift": dict(self._drift.latest),
            "decision_us_mean": round(1e6 * self._decision_seconds / max(decisions, 1), 1),
            "decision_us_max": round(1e6 * self._slowest, 1),
            "decision_seconds": self._decision_seconds,
            "decisions_by_time": list(self._decision_buckets),
            "goodput": self.predictions.snapshot(),
            "last_mode": last.mode.value if last else "",
            "last_reason": last.reason if last else "",
            "last_depth": int(last.draft_depth) if last else 0,
        }


class FaultCounters(Counters):
    """Counters of faults and events alone, for simulations that show no others."""

    def count_plan(self, context: StepContext, plan: SpecPlan) -> None:
        """Ignore a decision."""

    def count_outcome(self, outcome: StepOutcome, plan: SpecPlan | None) -> None:
        """Ignore a step's results."""

    def count_finished(self, step: FinishedStep) -> None:
        """Ignore task labels, sources of drafts and stuck requests."""

    def ending(self, slots: IntArray) -> None:
        """Ignore the end of requests."""

    def decision_seconds(self, seconds: float) -> None:
        """Ignore the time of a decision."""


class PredictionQuality(msgspec.Struct, frozen=True):
    """Calibration of one source of predictions, as `policies.hazard_quality` makes it.

    None where too little was observed.
    """

    observations: float
    auc: float | None
    ece: float | None
    auc_by_position: list[float | None]
    ece_by_position: list[float | None]


FIGURES: Mapping[str, Any] = {
    "explanation": dict[str, Any],
    "hazard_quality": dict[str, PredictionQuality],
    "estimates": dict[str, float],
    "break_even": dict[str, Any],
}
"""Methods that a policy may have, and the type of their answers. ``explanation``: numbers behind
the last decision, as `adaptive_spec.operation.why` reads them; ``hazard_quality``: calibration by
source; ``estimates``: expected tokens per second of ``no_speculation``, ``engine_k`` and
``planned``; ``break_even``: accepted drafts that a round needs, by load."""


def figures_of(policy: object, method: str) -> dict[str, Any]:
    """Return what one of the `FIGURES` says of a policy, made plain; empty if it has none.

    Raises PolicyError if the policy raises or answers with another type.
    """
    said = getattr(policy, method, None)
    if said is None:
        return {}
    try:
        figures = plain(dict(said()))
        msgspec.convert(figures, FIGURES[method])
    except POLICY_ERRORS as error:
        raise PolicyError(described(error)) from error
    return dict(figures)


class StatusFile:
    """Writer of a status file, about once a second; the file is replaced as a whole."""

    def __init__(self, path: Path | None, retry: Retry) -> None:
        self._file = OwnedFile(path) if path else None
        self._retry = retry
        self._next = 0.0

    @classmethod
    def from_config(
        cls, name: str | None, counters: Counters, logger: logging.Logger
    ) -> StatusFile:
        """Build from the configured name; `{pid}` becomes the process id."""
        path = Path(name.replace("{pid}", str(os.getpid()))) if name else None
        return cls(path, Retry(f"status file {str(path)!r}", counters.output_failed, logger))

    def refresh(
        self, now: float, status: Callable[[], dict[str, Any]], *, idle: bool = False
    ) -> None:
        """Write if the last write is old enough, or if nothing follows for now."""
        if self._file is None or (not idle and 0 <= self._next - now <= _REFRESH_SECONDS):
            return
        self._next = now + _REFRESH_SECONDS
        file = self._file
        self._retry.attempt(now, lambda: file.replace(msgspec.json.encode(status())))

    def close(self) -> None:
        """Let the file go, so that the next engine of this process can write it."""
        if self._file is not None:
            self._file.close()


_SECONDS = 1.0
_MOST_ROWS = 600

# ``requests`` adds up the batch of each step; ``measuring``, ``off`` and ``engine`` are steps.
COLUMNS = (
    *("at", "steps", "requests", "verified", "accepted", "emitted", "measuring", "off", "engine"),
    *("measured", "predicted", "no_speculation", "engine_k", "planned", "depth", "by_k"),
)
"""``at`` in Unix seconds; ``steps`` to ``engine`` count since start, as does ``by_k``, requests of
steps by their K; others of that moment."""


class History:
    """Rows of figures, at most one a second and 600 in all; nothing while the engine is idle."""

    def __init__(self) -> None:
        self._rows: deque[list[Any]] = deque(maxlen=_MOST_ROWS)
        self._next = 0.0

    def due(self, now: float) -> bool:
        """Return whether a second has passed since the last row; `now` in monotonic seconds."""
        return not 0.0 <= self._next - now <= _SECONDS

    def add(self, now: float, status: Mapping[str, Any]) -> None:
        """Add a row of a status."""
        self._next = now + _SECONDS
        kinds, goodput = status["steps_by_kind"], status["goodput"]
        estimates = status["estimates"]
        self._rows.append(
            [
                round(time.time(), 2),
                status["steps"],
                sum(status["requests_by_k"].values()),
                status["verified_tokens"],
                status["accepted_tokens"],
                status["emitted_tokens"],
                *(kinds.get(name, 0) for name in ("measuring", "off", "engine")),
                *(goodput.get(name) for name in ("measured", "predicted")),
                *(estimates.get(name) for name in ("no_speculation", "engine_k", "planned")),
                status["last_depth"],
                dict(status["requests_by_k"]),
            ]
        )

    def snapshot(self) -> dict[str, Any]:
        """Return ``columns`` and ``rows``, the oldest first."""
        return {"columns": list(COLUMNS), "rows": list(self._rows)}
