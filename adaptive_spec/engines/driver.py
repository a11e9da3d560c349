"""The life of an engine step, once for all engines.

An adapter's `StepDriver` is called by the engine's hooks. One step lives like this:

1. planned: before the engine composes it, or ahead, while the device works on the step before
   (`Ahead`, `take_ahead`);
2. launched: it is under way, and results are owed (`launch`);
3. read: its results have arrived and the engine is about to apply them (`completed`);
4. learned from: once they are applied, when the device works again or the engine is idle
   (`learn_from_results`), and then the requests that have ended are forgotten.

Results may come late, in pairs or never; a request may end at any of these points. An exception of
ours leaves the step to the engine's own K and is counted (`fail_open`); the step keeps its place
among those under way, because its results will come all the same.

What an adapter fills in: how the plan is applied, how results are matched to a step, what the
outcome of a step was (`outcome_of`), and which requests the engine still knows.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container
from typing import Generic, NamedTuple, Protocol, TypeVar

from adaptive_spec.controller.controller import Controller
from adaptive_spec.engines.fail_open import Guarded, fail_open
from adaptive_spec.step import StepContext, StepOutcome

_Launched = TypeVar("_Launched")


class PendingSteps(deque[_Launched]):
    """The adapter's own records of the steps under way, oldest first.

    Results arrive in launch order, but some steps never report: they ran nothing or a fault dropped
    them. So results are matched to a step by facts of both, and the steps before it are dropped.
    """

    def pop_matching(self, matches: Callable[[_Launched], bool]) -> _Launched | None:
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


MAX_GAP_SECONDS = 0.02
"""Longest time from a completion to the next launch of a busy engine (seconds)."""


class StepClock:
    """Converts launch and completion times into step durations. All times in seconds.

    Steps overlap where an engine schedules ahead, so the time from a step's launch to its results
    includes part of the step before. The cost of a step is the time from the previous completion to
    its own while the engine has work; after a pause, the time since its launch. The caller counts
    the steps under way.
    """

    def __init__(self) -> None:
        self._completed = -math.inf
        self._not_clean = 0

    def launched(self, now: float, *, under_way: int) -> float:
        """Return the earliest time that the work of a step launched at `now` is counted from.

        Args:
            now: monotonic clock.
            under_way: steps launched before this one whose results have not arrived.
        """
        idle = under_way == 0 and now - self._completed > MAX_GAP_SECONDS
        return now if idle else -math.inf

    def completed(self, not_before: float, now: float) -> float:
        """Return the duration of the step whose results arrived at `now`.

        nan without a clean measurement.

        Args:
            not_before: the value that `launched` returned for the step.
            now: time of completion.
        """
        began = max(not_before, self._completed)
        self._completed = now
        if self._not_clean:
            self._not_clean -= 1
            return math.nan
        seconds = now - began
        return seconds if 0 < seconds < math.inf else math.nan

    def other_work_ended(self, now: float, not_before: float = -math.inf) -> float:
        """Record the completion of an untracked batch, such as a batch of prompts.

        Returns its duration; inf where the time of the completion before is unknown.
        """
        began, self._completed = max(not_before, self._completed), now
        return now - began

    def interrupted(self, *, under_way: int) -> None:
        """Discard the samples of the steps under way and of the next: the engine was paused."""
        self._not_clean = under_way + 1

    def reset(self) -> None:
        """Start anew: the results of the steps under way will not arrive."""
        self._completed = -math.inf


class Step:
    """A step between its plan and its results.

    Attributes:
        context: state that it was planned from; None after a fault of ours, and then the step only
            keeps its place among those under way.
        not_before: earliest time that its work is counted from, seconds; see `StepClock`.
    """

    __slots__ = ("context", "not_before")

    def __init__(self, context: StepContext | None = None) -> None:
        self.context = context
        self.not_before = -math.inf


class Ranks(Protocol):
    """The ranks that must run the same K."""

    def settle(self, proposal: int) -> int:
        """Return the K that all ranks run; every rank calls this once per step."""
        ...


_Step = TypeVar("_Step", bound=Step)
_Results = TypeVar("_Results")
_Made = TypeVar("_Made")


class Ahead(NamedTuple, Generic[_Made]):
    """A plan that was made while the device worked on the step before.

    Attributes:
        made: the adapter's plan.
        since: `Controller.decides_since` when it was made. The plan ends with the operator's next
            change.
    """

    made: _Made
    since: int


class StepDriver(Guarded, ABC, Generic[_Step, _Results, _Made]):
    """Driver of one engine's controller; used from the thread of the engine's scheduler.

    Type parameters: the adapter's `Step`, its results of a step, and its plan made ahead.

    Args:
        controller: of this engine; None on a rank that is told what to run.
        log: where faults are said that no controller counts.
        ranks: those that must run the same K; None where one decides for all by itself.
        clock: monotonic seconds; replaced where an engine runs on a modelled device.
    """

    def __init__(
        self,
        controller: Controller | None,
        log: logging.Logger,
        *,
        ranks: Ranks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(controller, log)
        self.controller: Controller | None = controller
        self.clock = clock
        self.detached = False
        """The ranks could not agree once; from then on the engine's own K runs."""
        self._ranks = ranks
        self._step_clock = StepClock()
        self._step = 0
        self._ahead: Ahead[_Made] | None = None
        self._pending = PendingSteps[_Step]()
        self._unlearned: list[_Results] = []
        """Results that have been read and not learned from."""
        self._ended: list[str] = []
        """Requests that have ended and are to be forgotten once those results are learned."""

    # ---------------------------------------------------------- an adapter fills in

    @abstractmethod
    def outcome_of(self, results: _Results) -> StepOutcome | None:
        """Return a step's outcome from applied results; None if nothing can be learned from it."""

    def forgotten(self, names: list[str]) -> None:
        """Forget requests that have ended, in what only this adapter keeps."""

    def idle(self) -> bool:
        """Return whether no step will follow for now, so that buffers are written."""
        return self.controller is not None and not len(self.controller.slots)

    # ----------------------------------------------------------------- life of a step

    def next_step(self) -> int:
        """Return the number of the step that is about to be planned."""
        self._step += 1
        return self._step

    def take_ahead(self) -> _Made | None:
        """Return the plan made ahead, once; None if the operator has changed something since."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or self.controller is None:
            return None
        return ahead.made if ahead.since == self.controller.decides_since else None

    def settle(self, proposal: int) -> int | None:
        """Return the K that all ranks run; None, for good, once the ranks could not agree.

        Every rank calls this in every step, also after a fault: the others are waiting.
        """
        if self._ranks is None:
            return proposal
        try:
            return self._ranks.settle(proposal)
        except Exception as error:
            self.detached = True
            self.fault("settle", error)
            return None

    def launch(self, step: _Step, now: float) -> None:
        """Record that a step is under way since `now` (seconds)."""
        under_way = len(self._pending)
        self._pending.append(step)
        step.not_before = self._step_clock.launched(now, under_way=under_way)

    def completed(self, matches: Callable[[_Step], bool]) -> tuple[_Step, float, float] | None:
        """Take the oldest step under way that matches arrived results.

        Returns the step, its duration (seconds; nan without a clean measurement) and the present
        time; None if no step matches.
        """
        now = self.clock()
        step = self._pending.pop_matching(matches)
        if step is None:
            return None
        return step, self._step_clock.completed(step.not_before, now), now

    def other_work_ended(self) -> None:
        """Record the end of a batch that is no step of ours, such as one of prompts."""
        self._step_clock.other_work_ended(self.clock())

    def learn_from_results(self) -> None:
        """Learn from the applied results, then forget the requests that have ended."""
        controller = self.controller
        assert controller is not None
        unlearned, self._unlearned = self._unlearned, []
        ended, self._ended = self._ended, []
        try:
            for results in unlearned:
                outcome = self.outcome_of(results)
                if outcome is not None:
                    controller.observe(outcome)
        finally:
            if ended:
                controller.finish(ended)
                self.forgotten(ended)
            if (unlearned or ended) and self.idle():
                controller.flush()

    def sweep(self, known: Container[str]) -> None:
        """Forget the requests that left without a last result, such as cancelled ones.

        Args:
            known: names of the requests that the engine still has.
        """
        if self.controller is not None:
            slots = self.controller.slots
            self.controller.finish([name for name in slots if name not in known])

    # ------------------------------------------------------------------ from outside

    @fail_open
    def paused(self) -> None:
        """Void the times of the steps under way and of the next: the engine pauses or resumes."""
        self._step_clock.interrupted(under_way=len(self._pending))

    @fail_open
    def close(self) -> None:
        """Write what is buffered: the engine ends."""
        if self.controller is not None:
            self.controller.close()
