"""A set-up whose K follows what it learns: simulated once, priced anew for each world.

One run goes through all loads, from the smallest to the largest, so that step times are learned
once. Of each load the steps behind the first ones are kept as a `Stretch`: what each step did, and
which output positions it emitted of which requests. The same positions under a fixed K cost a
number of steps that is known (`Replay.progress`), so the speed of the set-up over that of the fixed
K is a ratio of times for the same tokens, in which most of the chance of a short run cancels. Other
step costs and other weights of requests (resamplings, another mix) change that ratio without
another run, as far as the set-up would have taken the same decisions there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.policy import build_policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.advice.fixed_k import FixedK
from adaptive_spec.sim.advice.setups import SetUp
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.engine.prompt_queue import Running
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.load.request import Request, requests_of
from adaptive_spec.step import FloatArray, IntArray

WARM_UP_STEPS = 300
_SETTLING_STEPS = 100
"""Steps after more clients have come that are not measured."""
_FEWEST_STEPS = 150
_LONG_SPAN = 32
"""Tokens of a request from which on its own time per token is shown."""


@dataclass(frozen=True)
class Stretch:
    """Steps at one load.

    Attributes:
        verify, draft: arguments of `StepTime` of each step.
        records: [requests] of each step, those whose prompts run included.
        spans: [spans, 4] requests that decoded: record, first position, the one after the last,
            steps.
    """

    verify: list[tuple[tuple[int, ...], dict[str, bool]]]
    draft: list[tuple[tuple[int, ...], bool]]
    records: list[IntArray]
    spans: IntArray

    def priced(self, fixed: FixedK, weights: IntArray) -> tuple[float, FloatArray, IntArray]:
        """Price the steps in a world.

        Args:
            fixed: a fixed K there.
            weights: [R] how often each request comes there.

        Returns the speed over that of the fixed K, and of each request of some length seconds per
        output token and its weight.
        """
        met = np.array([weights[each].mean() if len(each) else 0.0 for each in self.records])
        if not met.any():  # none of the requests that were simulated comes in this world
            return self.priced(fixed, np.ones_like(weights))
        batch = np.array([arguments[0] for arguments, _ in self.verify])
        own = np.array(
            [
                fixed.time.verify(*arguments, **kinds) + fixed.time.draft(*drafting, cold=cold)
                for (arguments, kinds), (drafting, cold) in zip(
                    self.verify, self.draft, strict=True
                )
            ]
        )
        plain, prompts = np.zeros((2, len(own)))
        both = zip(self.verify, self.draft, strict=True)
        for number, ((arguments, _), (drafting, _)) in enumerate(both):
            size, _, context, tokens, attended = arguments
            plain[number] = fixed.seconds(size, context, 0, 0, 0) if size else 0.0
            if tokens:
                whole = fixed.seconds(size, context, drafting[0] - size, tokens, attended)
                prompts[number] = whole - plain[number]
        if not len(self.spans):  # requests of one token, which their prompts emit
            return 1.0, own[:1], np.ones(1, dtype=np.int64)
        record, first, last, steps = self.spans.T
        progress = fixed.replay.progress
        needed = float(weights[record] @ (progress[last] - progress[first]))
        request_step = float(met @ plain) / max(float(met @ batch), 1e-9)
        ratio = (needed * request_step + float(met @ prompts)) / float(met @ own)
        shown = last - first >= min(_LONG_SPAN, int((last - first).max()))
        pace = float(batch @ own) / max(float(batch.sum()), 1.0)
        tpot = pace * steps[shown] / (last - first)[shown]
        return ratio, tpot, weights[record[shown]]


class _GrowingLoad:
    """Clients that never leave, each sending its next request when its last one has ended."""

    closed = endless = True

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests
        self._due = self._clients = 0

    def grow(self, clients: int) -> None:
        """Let clients come until there are so many."""
        self._due += clients - self._clients
        self._clients = clients

    def next_arrival(self) -> float:
        return 0.0 if self._due else np.inf

    def take_request(self) -> Request:
        self._due -= 1
        return next(self._requests)

    def finished(self, request: Request, now: float) -> None:
        self._due += 1


class _Recorder:
    """Step times, with a note of what was asked."""

    def __init__(self, time: StepTime) -> None:
        self.time = time
        self.verified: list[tuple[tuple[int, ...], dict[str, bool]]] = []
        self.drafted: list[tuple[tuple[int, ...], bool]] = []

    def verify(self, *arguments: int, **kinds: bool) -> float:
        self.verified.append((arguments, kinds))
        return self.time.verify(*arguments, **kinds)

    def draft(self, *arguments: int, cold: bool) -> float:
        self.drafted.append((arguments, cold))
        return self.time.draft(*arguments, cold=cold)


def stretches(
    set_up: SetUp,
    data: AcceptanceData,
    drafter: Drafter,
    hardware: Hardware,
    options: EngineOptions,
    loads: Sequence[int],
    *,
    seed: int,
    tokens: int,
    progress: Callable[[], None],
) -> dict[int, Stretch]:
    """Simulate a set-up at all loads.

    Args:
        set_up: whose policy runs.
        data: has been through `drafter.shape`.
        drafter: of the engine.
        hardware: of the engine.
        options: of the engine.
        loads: clients, ascending.
        seed: of all draws.
        tokens: fewest tokens that are measured of a load.
        progress: called after each load.
    """
    load = _GrowingLoad(requests_of(data, seed=seed))
    engine = Engine(
        load,
        data,
        drafter,
        hardware,
        build_policy(set_up.policy, set_up.options, seed=seed, baselines=True),
        msgspec.structs.replace(options, max_running=loads[-1]),
        seed=seed,
        shaped=True,
    )
    found: dict[int, Stretch] = {}
    for clients in loads:
        load.grow(clients)
        for _ in range(_SETTLING_STEPS if found else WARM_UP_STEPS):
            engine.take_in()
            engine.step()
        found[clients] = _stretch(engine, tokens)
        progress()
    engine.controller.close()
    return found


def _stretch(engine: Engine, tokens: int) -> Stretch:
    recorder = _Recorder(engine.step_time)
    step_time: Any = recorder
    engine.step_time = step_time
    measured, until = engine.measurements, engine.measurements.tokens + tokens
    spans: list[tuple[int, int, int, int]] = []
    began: dict[int, tuple[Running, int, int]] = {}
    """Each request that decodes, its first position of the stretch, and the step."""
    records: list[IntArray] = []
    members: list[Running] = []

    def end(key: int, step: int) -> None:
        member, first, at = began.pop(key)
        spans.append((member.request.record, first, member.start + member.emitted - 1, step - at))

    step = 0
    while measured.tokens < until or step < _FEWEST_STEPS:
        engine.take_in()
        if engine.batch.members is not members:
            members = engine.batch.members
            for key in began.keys() - {id(each) for each in members}:
                end(key, step)
            for member, place in zip(members, engine.batch.cursor.tolist(), strict=True):
                began.setdefault(id(member), (member, place, step))
        there = (*members, *engine.prompts.running, *engine.prompts.waiting)
        records.append(np.array([each.request.record for each in there], dtype=np.int64))
        engine.step()
        step += 1
    for member, emitted in zip(engine.batch.members, engine.batch.emitted.tolist(), strict=True):
        member.emitted = emitted
    for key in list(began):
        end(key, step)
    engine.step_time = recorder.time
    kept = np.array([each for each in spans if each[2] > each[1]], dtype=np.int64).reshape(-1, 4)
    return Stretch(recorder.verified, recorder.drafted, records, kept)
