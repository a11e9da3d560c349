"""Why a policy decided as it did in a recorded trace, and which of its beliefs were wrong.

The trace is replayed through a fresh policy: it plans each recorded step and learns what really
ran. Its beliefs are held against what the trace measured: how long steps took, with drafts and
without, and how often each draft was accepted. In the steps before, these are the beliefs of each
step. In the steps after the one asked about, they are the beliefs that step was decided by: a
policy that learned from them would soon be right, and the wrong belief behind a wrong decision is
gone.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.operation.why import sentence
from adaptive_spec.sim.explained_policy import ExplainedPolicy
from adaptive_spec.sim.hardware.from_trace import one_server
from adaptive_spec.sim.logged_steps import LoggedStep, LoggedTrace, learn_step
from adaptive_spec.sim.policy_choice import PolicyChoice
from adaptive_spec.sim.step_trace import Source
from adaptive_spec.step import Mode

WINDOW = 200
"""Steps before the one asked about, and after it, that beliefs are held against, by default."""
_WRONG_SECONDS = 0.15
"""Relative error of believed step times that is called wrong; noise of single steps is below."""
_WRONG_ACCEPTANCE = 3.0
"""Standard errors of a measured acceptance rate beyond which a belief is called wrong."""
_LEAST_STEPS, _LEAST_DRAFTS = 3, 20
_OFF = (Mode.OFF_WARM, Mode.OFF_COLD)


@dataclass(frozen=True, slots=True)
class Belief:
    """One belief at a step, beside what was measured.

    Attributes:
        name: for people.
        believed, measured: seconds per step, or acceptance from 0 to 1.
        samples: steps or drafts measured.
        wrong: the two differ by more than chance explains.
        seconds: the values are seconds.
    """

    name: str
    believed: float
    measured: float
    samples: int
    wrong: bool
    seconds: bool


@dataclass(frozen=True, slots=True)
class Explained:
    """A decision of the replayed policy.

    Attributes:
        step: number of the step in the trace.
        at: seconds since the first step of the trace.
        batch: decoding requests.
        recorded: mode that ran in the recorded server.
        replayed: mode that the replayed policy chose.
        why: the decision in words and numbers.
        switch: numbers that speculation is switched by, as the policy names them.
        beliefs: held against the steps before.
        afterwards: the beliefs of this step, held against the steps after it.
    """

    step: int
    at: float
    batch: int
    recorded: Mode
    replayed: Mode
    why: str
    switch: dict[str, Any]
    beliefs: tuple[Belief, ...]
    afterwards: tuple[Belief, ...] = ()


@dataclass(frozen=True, slots=True)
class Switches:
    """Where speculation was switched in a trace.

    Attributes:
        steps: decode steps of the trace.
        recorded: steps at which the server switched speculation off or on.
        replayed: steps at which the replayed policy did.
        departs: first step at which one of them is off and the other is not; None: none.
    """

    steps: int
    recorded: tuple[Explained, ...]
    replayed: tuple[Explained, ...]
    departs: int | None


def switches(trace: Source, choice: PolicyChoice, seed: int = 0) -> Switches:
    """Find the switches of the recorded server and of the policy replayed on its trace.

    Raises DataError or PolicyError naming the fault.
    """
    found: tuple[list[Explained], list[Explained]] = [], []
    before: tuple[bool, bool] | None = None
    steps, departs = 0, None
    for logged, mode, replay in _replayed(_one_log(trace).steps(), choice, seed):
        steps += 1
        now = logged.record.mode in _OFF, mode in _OFF
        if departs is None and now[0] is not now[1]:
            departs = logged.record.step
        if before is not None and now != before:
            explained = replay.explained(logged, mode)
            for each, old, new in zip(found, before, now, strict=True):
                each.extend([explained] * (old is not new))
        before = now
    return Switches(steps, tuple(found[0]), tuple(found[1]), departs)


def explain(
    trace: Source,
    choice: PolicyChoice,
    *,
    step: int | None = None,
    around: float | None = None,
    seed: int = 0,
    window: int = WINDOW,
) -> Explained:
    """Explain one step.

    Args:
        trace: folder of segments.
        choice: policy that was recorded, or another one.
        step: number in the trace.
        around: instead, seconds since the first step.
        seed: of the policy.
        window: steps before it, and after it, that beliefs are held against.

    Raises DataError or PolicyError naming the fault; DataError if the trace lacks the step.
    """
    log = _one_log(trace)
    steps = log.steps()
    for logged, mode, replay in _replayed(steps, choice, seed, window):
        reached = around is not None and replay.at(logged) >= around
        if reached or logged.record.step == step:
            explained = replay.explained(logged, mode)
            return replace(explained, afterwards=replay.afterwards(chain((logged,), steps)))
    wanted = f"step {step}" if around is None else f"step {around:g} s after the first"
    raise DataError(f"{log.directory}: no {wanted} in which a request decodes")


def _one_log(source: Source) -> LoggedTrace:
    return LoggedTrace(one_server(source))


def _replayed(
    steps: Iterable[LoggedStep], choice: PolicyChoice, seed: int, window: int = WINDOW
) -> Iterator[tuple[LoggedStep, Mode, _Replay]]:
    replay = _Replay(choice, seed, window)
    for logged in steps:
        yield logged, replay.plan_step(logged), replay
        replay.compare_and_learn(logged)


class _Replay:
    def __init__(self, choice: PolicyChoice, seed: int, window: int) -> None:
        policy = choice.build(seed)
        if not isinstance(policy, ExplainedPolicy):
            raise DataError(f"policy {choice.text!r} has no beliefs to explain; try goodput")
        self._policy = policy
        self._first = math.nan
        self._window = window
        self._before = _Comparison(window)

    def at(self, logged: LoggedStep) -> float:
        """Seconds since the first step."""
        return logged.context.now - self._first

    def plan_step(self, logged: LoggedStep) -> Mode:
        """Plan the step; the mode of the plan."""
        if math.isnan(self._first):
            self._first = logged.context.now
        self._plan = self._policy.plan(logged.context)
        return self._plan.mode

    def compare_and_learn(self, logged: LoggedStep) -> None:
        """Hold the beliefs against the step, then learn from it."""
        self._before.add(self._policy, logged)
        learn_step(self._policy, self._plan, logged)

    def explained(self, logged: LoggedStep, mode: Mode) -> Explained:
        """Explain the step that has just been planned."""
        numbers = dict(self._policy.explanation())
        switch = numbers.pop("switch", {})
        why = sentence(self._plan, numbers, self.at(logged))
        return Explained(
            step=logged.record.step,
            at=self.at(logged),
            batch=logged.context.batch_size,
            recorded=logged.record.mode,
            replayed=mode,
            why=why.replace(" UTC", " of the trace"),
            switch=switch,
            beliefs=self._before.beliefs(),
        )

    def afterwards(self, steps: Iterable[LoggedStep]) -> tuple[Belief, ...]:
        """Hold the present beliefs against the step just planned and those after it."""
        policy, found = copy.deepcopy(self._policy), _Comparison(self._window)
        for logged in islice(steps, self._window):
            policy.plan(logged.context)
            found.add(policy, logged)
        return found.beliefs()


class _Comparison:
    """Believed and measured values of the last steps."""

    def __init__(self, window: int) -> None:
        self._steps: deque[tuple[bool, float, float]] = deque(maxlen=window)
        """With drafts?, believed and measured seconds of each step."""
        self._drafts: deque[tuple[Any, Any]] = deque(maxlen=window)
        """Sums [Kmax] over the requests of each step: (believed, seen), accepted."""

    def add(self, policy: ExplainedPolicy, logged: LoggedStep) -> None:
        """Note a step that the policy has just planned."""
        forecast, outcome = policy.last_forecast, logged.outcome
        if forecast is None or forecast.context.step != logged.context.step:
            return
        drafts = int(outcome.verified.sum())
        mode = logged.record.mode if not drafts and logged.record.mode in _OFF else Mode.ON
        believed = forecast.seconds_of(
            drafts, outcome.draft_depth, mode, ragged=len(set(outcome.verified.tolist())) > 1
        )
        believed -= logged.context.shared_seconds
        if not outcome.prefill_tokens and not math.isnan(outcome.seconds):
            self._steps.append((drafts > 0, believed, outcome.seconds))
        survival = forecast.survival
        hazard = survival / np.maximum(np.vstack((np.ones(survival.shape[1]), survival[:-1])), 1e-9)
        position = np.arange(len(survival))[:, None]
        seen = position < np.minimum(outcome.accepted + 1, outcome.verified)
        accepted = seen & (position < outcome.accepted)
        sums = np.where(seen, hazard, 0.0).sum(axis=1), seen.sum(axis=1)
        self._drafts.append((sums, accepted.sum(axis=1)))

    def beliefs(self) -> tuple[Belief, ...]:
        """Return what was believed beside what was measured."""
        return (*self._step_times(), *self._acceptance())

    def _step_times(self) -> Iterator[Belief]:
        for drafted, name in ((False, "step without drafts"), (True, "step with drafts")):
            rows = np.array([row[1:] for row in self._steps if row[0] == drafted])
            if len(rows) < _LEAST_STEPS:
                continue
            believed, measured = np.median(rows, axis=0).tolist()
            error = float(np.median(rows[:, 1] / rows[:, 0])) - 1.0
            wrong = abs(error) > _WRONG_SECONDS
            yield Belief(name, believed, measured, len(rows), wrong, seconds=True)

    def _acceptance(self) -> Iterator[Belief]:
        if not self._drafts:
            return
        believed = sum(sums[0] for sums, _ in self._drafts)
        seen = sum(sums[1] for sums, _ in self._drafts)
        accepted = sum(hits for _, hits in self._drafts)
        for j, count in enumerate(seen.tolist()):
            if count < _LEAST_DRAFTS:
                continue
            expected, rate = believed[j] / count, accepted[j] / count
            error = math.sqrt(max(expected * (1.0 - expected), 1e-4) / count)
            wrong = bool(abs(rate - expected) > _WRONG_ACCEPTANCE * error)
            yield Belief(f"draft {j + 1} accepted", expected, rate, count, wrong, seconds=False)
