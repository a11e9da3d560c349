"""Requests whose drafts are all accepted, or none, for longer than others' ever are.

A text that repeats itself has its drafts accepted without end; one whose state is damaged, or that
the drafter does not fit, has none accepted. Nothing is done about it here: the event is counted,
and the log names the first request of each kind.

**How long is too long** is learned from the server's own requests. Each request that ends brings
its longest run: drafts accepted in a row, and rounds in a row without an accepted draft. A run is
too long if it is longer than those of the last N = 20,000 requests that ended. Whatever the
distribution of runs, an ordinary request is so by chance once in N + 1 (its rank among them is as
likely to be any), for each of the two kinds; so one of 10,000 is called stuck by chance. While
fewer have ended, the bound is up to twice the longest run, and nothing is called stuck before 2,000
have.
A stuck request counts as no longer than the bound, so that it does not hide the next one, and
raises the bound by 5 %, so that traffic with longer runs soon passes as ordinary.

Runs are counted in blocks of steps: a block counts for a run if all drafts of a request in it were
accepted, or none, so that a step costs next to nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from adaptive_spec.per_request import SlotArray
from adaptive_spec.step import BoolArray, FinishedStep, IntArray

_LEAST_REQUESTS, _REMEMBERED, _EVERY = 2000, 20_000, 256
"""Ended requests before any is called stuck, those compared with, and those between two looks."""
_RAISED, _LEAST_RUN = 1.05, 16.0
"""Factor of the bound for each stuck request, and the least bound."""


class Stuck(StrEnum):
    """Ways in which a request is stuck; the names of its events."""

    ALL = "requests_all_accepted"
    NONE = "requests_none_accepted"


class LongestRuns:
    """The longest runs of the requests that ended last, and the length that is too long."""

    def __init__(self) -> None:
        self.too_long = math.inf
        self._runs: IntArray = np.zeros(_REMEMBERED, dtype=np.int64)
        self._ended = 0

    def ended(self, runs: IntArray) -> None:
        """Count the longest run of each request that has ended."""
        for run in np.minimum(runs, self.too_long).tolist():
            self._runs[self._ended % _REMEMBERED] = run
            self._ended += 1
            if self._ended >= _LEAST_REQUESTS and self._ended % _EVERY == 0:
                unknown = max(1.0 - self._ended / _REMEMBERED, 0.0)
                longest = float(self._runs.max()) * (1.0 + unknown)
                self.too_long = max(longest, _LEAST_RUN)

    def passed(self) -> None:
        """A run was too long."""
        self.too_long *= _RAISED


class StuckRequests:
    """Finds stuck requests among finished steps.

    Args:
        logger: told of the first request of each kind.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger
        self._kinds = tuple(Stuck)
        self._longest = [LongestRuns() for _ in self._kinds]
        self._runs = SlotArray(np.int64(0), (2,))
        self._most = SlotArray(np.int64(0), (2,))
        """[slots, 2] length of the present run of each kind, and the longest one."""
        self._called = SlotArray(np.int64(0), (2,))
        """[slots, 2] whether the request was called stuck."""
        self._ending: list[IntArray] = []
        self.counts = dict.fromkeys(self._kinds, 0)
        self.latest: dict[str, str] = {}
        """Kind -> id of the last such request."""

    def ending(self, slots: IntArray) -> None:
        """Requests have ended; the steps that they were in may not be counted yet."""
        self._ending.append(slots)

    def finished(self, steps: Sequence[FinishedStep]) -> None:
        """Count a block of steps."""
        outcomes = [step.outcome for step in steps if step.outcome.slots.size]
        if outcomes:
            slots, verified, accepted = (
                np.concatenate([getattr(outcome, name) for outcome in outcomes])
                for name in ("slots", "verified", "accepted")
            )
            self._count(slots, verified, accepted, steps)
        self._forget()

    def _count(
        self, slots: IntArray, verified: IntArray, accepted: IntArray, steps: Sequence[FinishedStep]
    ) -> None:
        size = int(slots.max()) + 1
        drafts, right = (np.bincount(slots, each, size) for each in (verified, accepted))
        rounds = np.bincount(slots, verified > 0, size)
        runs, most = self._runs.reaching(size - 1)[:size], self._most.reaching(size - 1)[:size]
        tried = drafts > 0
        lengths = np.stack((drafts, rounds), axis=1).astype(np.int64)
        goes_on: BoolArray = np.stack((right == drafts, right == 0), axis=1)
        called = self._called.reaching(size - 1)[:size]
        runs[tried] = np.where(goes_on, runs + lengths, 0)[tried]
        np.maximum(most, runs, out=most)
        for kind, longest in enumerate(self._longest):
            over = (runs[:, kind] > longest.too_long) & (called[:, kind] == 0)
            for slot in np.flatnonzero(over).tolist():
                called[slot, kind] = 1
                self._found(kind, slot, int(runs[slot, kind]), steps)

    def _found(self, kind: int, slot: int, run: int, steps: Sequence[FinishedStep]) -> None:
        name, bound = self._kinds[kind], self._longest[kind].too_long
        self._longest[kind].passed()
        self.counts[name] += 1
        context = next(
            step.context for step in reversed(steps) if slot in step.context.slots.tolist()
        )
        self.latest[name.value] = context.request_ids[context.slots.tolist().index(slot)]
        if self.counts[name] == 1:
            what = (
                f"all of the last {run} drafts were accepted; its text may repeat itself",
                f"no draft was accepted in {run} rounds; its state may be damaged, or the drafter "
                "does not fit it",
            )[kind]
            self._log.warning(
                "adaptive_spec: request %r: %s. %.0f would be too long here. Further ones are only "
                "counted (event %s)",
                self.latest[name.value],
                what,
                bound,
                name.value,
            )

    def _forget(self) -> None:
        if not self._ending:
            return
        slots = np.unique(np.concatenate(self._ending))
        self._ending = []
        longest = self._most[slots]
        for kind, each in enumerate(self._longest):
            each.ended(longest[:, kind])
        self._runs.reset(slots)
        self._most.reset(slots)
        self._called.reset(slots)

    def events(self) -> dict[str, int]:
        """Return how many requests were stuck, of the kinds that there were."""
        return {name.value: count for name, count in self.counts.items() if count}

    def bounds(self) -> dict[str, int | None]:
        """Return by kind the run that is too long; None before that is known."""
        each = zip(self._kinds, self._longest, strict=True)
        return {
            name.value: round(longest.too_long) if longest.too_long < math.inf else None
            for name, longest in each
        }
