"""Predictions of all set-ups on both halves of a trace, their intervals, and other traffic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist

import msgspec
import numpy as np

from adaptive_spec.sim.advice import setups
from adaptive_spec.sim.advice.setups import SetUp
from adaptive_spec.sim.advice.values import SELDOM, Advice, BeyondLoad, Estimate, Prediction, WhatIf
from adaptive_spec.sim.advice.worlds import HALVES, Change, Outcome, World, changes, halves
from adaptive_spec.sim.hardware.from_trace import TimedSteps

CONFIDENCE = 0.95
_LEAST_SHOWN = 0.001
_MOST_CLIENTS = 1024
_MODEL_ERROR, _SELDOM_ERROR = 0.005, 0.025
"""Relative error of predicted tokens per step that more traffic does not take away: in the judge
.5 % (root mean square) for the K that ran, up to 2.7 % for a K that hardly ran."""
_OTHER = {HALVES[0]: HALVES[1], HALVES[1]: HALVES[0]}


def student_t(confidence: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t; good to 1 % from 5 degrees of freedom.

    Expansion around the normal quantile (Abramowitz and Stegun, 26.7.5).
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / degrees + second / degrees**2 + third / degrees**3


Run = tuple[str, SetUp, int]
"""Name of a world, set-up and clients."""


class Runs:
    """Outcomes by world, set-up and load.

    Args:
        worlds: by name.
    """

    def __init__(self, worlds: Mapping[str, World]) -> None:
        self._worlds = worlds
        self._outcomes: dict[tuple[str, str, int], Outcome] = {}

    def run_missing(self, wanted: Iterable[Run]) -> None:
        """Simulate these runs; those simulated before are skipped."""
        for world, set_up, clients in wanted:
            key = world, set_up.name, clients
            if key not in self._outcomes:
                self._outcomes[key] = self._worlds[world].run(set_up, clients)

    def outcome(self, world: str, set_up: str, clients: int) -> Outcome:
        """Return the outcome of a run that was made, by the name of its set-up."""
        return self._outcomes[world, set_up, clients]

    def speed(
        self, world: str, set_up: str, loads: Sequence[int], tokens: Sequence[float]
    ) -> float:
        """Return the tokens per second of a set-up that has so many to emit at each load."""
        speeds = [self.outcome(world, set_up, clients).tokens_per_second for clients in loads]
        # The work is what is given; a slower set-up stays at a load for longer.
        seconds = sum(each / speed for each, speed in zip(tokens, speeds, strict=True))
        return sum(tokens) / seconds


class Predictor:
    """Predicts all set-ups on both halves, their resamplings and other traffic."""

    def __init__(
        self,
        seen: Advice,
        whole: World,
        steps: TimedSteps,
        resamplings: int,
        present: SetUp | None,
    ) -> None:
        self._seen = seen
        self._loads = [load.clients for load in seen.loads]
        self._tokens = [load.share * load.tokens_per_second for load in seen.loads]
        largest = self._loads[-1]
        self._beyond = [n for n in (2 * largest, 4 * largest) if n <= _MOST_CLIENTS]
        worlds = halves(whole, steps, -(-resamplings // 2))
        # Each half is drawn in turn.
        resampled = [name for name in worlds if name not in HALVES]
        self._resampled = sorted(resampled, key=lambda name: int(name.split("/")[1]))
        self._every_change = changes(whole, self._loads)
        for change in self._every_change:
            for half in HALVES:
                worlds[f"{half}: {change.name}"] = change.of(worlds[half])
        self._runs = Runs(worlds)
        self._none, self._warm = setups.no_speculation(), setups.warm_zero()
        of = seen.engine, whole.traffic.drafter.name
        self._static = [setups.static(k, *of) for k in range(1, seen.kmax + 1)]
        self._ours = setups.ours(seen.kmax, *of)
        self._by_load = setups.varies_k(*of)
        self._present = [] if present is None else [present]

    def predict(self, resamplings: int, *, complete: bool) -> Advice:
        """Return the advice with all predictions and without a verdict.

        Args:
            resamplings: behind the intervals.
            complete: with other traffic than was recorded.
        """
        self._drawn = self._resampled[:resamplings]
        self._changes = self._every_change if complete else []
        self._runs.run_missing(
            (half, each, clients)
            for half in HALVES
            for each in (self._none, *self._static, self._warm)
            for clients in (*self._loads, *self._beyond)
        )
        own = {half: self._tuned(half) for half in HALVES}
        self._runs.run_missing(
            (half, each, clients)
            for half in HALVES
            for each in (own[_OTHER[half]], self._ours, *self._present)
            for clients in self._loads
        )
        native = self._best_native(own)
        self._runs.run_missing(self._paired_runs(own, native))
        return self._advice(own, native)

    def _tuned(self, half: str) -> SetUp:
        """The engine's own set-up for several loads, tuned to a half."""
        candidates = setups.native(
            self._seen.engine, self._speeds((half,), self._warm), self._speeds((half,), self._none)
        )
        if len(candidates) == 1:
            return candidates[0]
        named = [
            msgspec.structs.replace(each, name=f"{each.name} {number}")
            for number, each in enumerate(candidates)
        ]
        self._runs.run_missing((half, each, clients) for each in named for clients in self._loads)
        tried = [self._speed(half, each.name) for each in named]
        return candidates[int(np.argmax(tried))]

    def _speeds(self, worlds: Sequence[str], zero: SetUp) -> setups.Speeds:
        """Tokens per second by load and K, mean over worlds, with K = 0 run as `zero`."""
        return {
            clients: {
                k: self._at(worlds, each.name, clients)
                for k, each in enumerate([zero, *self._static])
            }
            for clients in self._loads
        }

    def _at(self, worlds: Sequence[str], name: str, clients: int) -> float:
        outcomes = [self._runs.outcome(world, name, clients) for world in worlds]
        return float(np.mean([each.tokens_per_second for each in outcomes]))

    def _speed(self, world: str, name: str) -> float:
        return self._runs.speed(world, name, self._loads, self._tokens)

    def _gain(self, name: str, over: str = setups.NO_SPECULATION) -> float:
        """Ratio of two set-ups' tokens per second over both halves."""
        return sum(self._speed(half, name) for half in HALVES) / sum(
            self._speed(half, over) for half in HALVES
        )

    def _best_native(self, own: Mapping[str, SetUp]) -> SetUp:
        candidates = [*self._static, *([own[HALVES[0]]] if self._by_load else [])]
        return max(candidates, key=lambda each: self._gain(each.name))

    def _paired_runs(self, own: Mapping[str, SetUp], native: SetUp) -> list[Run]:
        """Runs for the intervals and for other traffic: a table meets the half it was not tuned on.

        Of a fixed K, every half is the other one.
        """
        wanted: list[Run] = []

        def add(world: str, half: str, factor: int = 1) -> None:
            tuned = own[_OTHER[half]]
            compared = (self._none, *self._present, native, self._ours)
            named = {each.name: each for each in compared}
            if tuned.name in named:
                named[tuned.name] = tuned
            wanted.extend(
                (world, each, factor * clients)
                for each in named.values()
                for clients in self._loads
            )

        for world in self._drawn:
            add(world, world.split("/")[0])
        for change in self._changes:
            for half in HALVES:
                add(f"{half}: {change.name}", half, change.load)
        return wanted

    def _interval(self, name: str, over: str = setups.NO_SPECULATION) -> Estimate:
        """Value of both halves; interval by the spread of each half's resamplings.

        A resampling holds half of the trace, so the whole has half of its variance. The model's own
        error comes on top.
        """
        value = self._gain(name, over)
        apart = []
        for world in self._drawn:
            half = world.split("/")[0]
            middle = self._speed(half, name) / self._speed(half, over)
            apart.append(self._speed(world, name) / self._speed(world, over) - middle)
        spread = math.sqrt(float(np.mean(np.square(apart))) / len(HALVES))
        half_width = student_t(CONFIDENCE, len(apart)) * spread
        guessed = over == self._seen.runs and self._seen.runs_share < SELDOM
        half_width = math.hypot(half_width, (_SELDOM_ERROR if guessed else _MODEL_ERROR) * value)
        return Estimate(value, max(value - half_width, 0.0), value + half_width)

    def _advice(self, own: Mapping[str, SetUp], native: SetUp) -> Advice:
        table = setups.native(
            self._seen.engine,
            self._speeds(HALVES, self._warm),
            self._speeds(HALVES, self._none),
        )[0]
        shown = msgspec.structs.replace(own[HALVES[0]], lines=table.lines)
        if self._seen.engine == "sglang":  # which of its lists is best, the halves have said
            shown = own[HALVES[0]]
        decided = (native.name, setups.OURS, self._seen.runs)
        fixed = {each.name for each in self._static}
        present = [each for each in self._present if each.name not in fixed]
        predictions = [
            self._prediction(each, each.name in decided)
            for each in (
                *(self._none, *self._static, *present),
                *([shown] if self._by_load else []),
                self._ours,
            )
        ]
        compared = [setups.OURS, native.name, setups.NO_SPECULATION] if self._present else []
        by_clients = [self._best_fixed(clients) for clients in (*self._loads, *self._beyond)]
        left_out = list(itertools.takewhile(lambda each: each.gain <= 1.0, by_clients[::-1]))
        return msgspec.structs.replace(
            self._seen,
            predictions=predictions,
            native=native.name,
            over_native=self._interval(setups.OURS, native.name),
            over_runs={
                name: self._interval(name, self._seen.runs)
                for name in compared
                if name != self._seen.runs
            },
            what_if=[self._what_if(change, native.name) for change in self._changes],
            by_clients=by_clients,
            leave_out_from=left_out[-1].clients if left_out else None,
            kept_at_zero=[*self._kept_in_time(), *self._seen.kept_at_zero],
        )

    def _kept_in_time(self) -> list[str]:
        """Say what the pass costs that keeps the drafter in step at K = 0."""
        slower = [
            1.0 - self._at(HALVES, self._warm.name, n) / self._at(HALVES, self._none.name, n)
            for n in self._loads
        ]
        if max(slower) < _LEAST_SHOWN:
            return []
        least, most = (f"{100 * max(each, 0.0):.1f}" for each in (min(slower), max(slower)))
        shown = most if least == most else f"{least} to {most}"
        return [f"{shown} % of throughput for the pass that keeps the drafter in step"]

    def _prediction(self, set_up: SetUp, decided: bool) -> Prediction:
        recorded = [
            self._runs.outcome(half, set_up.name, load) for half in HALVES for load in self._loads
        ]
        return Prediction(
            name=set_up.name,
            by_load=[self._at(HALVES, set_up.name, load) for load in self._loads],
            tokens_per_second=sum(self._speed(half, set_up.name) for half in HALVES) / 2,
            gain=self._gain(set_up.name),
            interval=self._interval(set_up.name) if decided else None,
            tpot_ms=_tpot(recorded, 2 * self._tokens),
            lines=set_up.lines,
        )

    def _what_if(self, change: Change, native: str) -> WhatIf:
        worlds = [f"{half}: {change.name}" for half in HALVES]
        loads = [change.load * clients for clients in self._loads]

        def speed(name: str) -> float:
            return sum(self._runs.speed(world, name, loads, self._tokens) for world in worlds)

        none = speed(setups.NO_SPECULATION)
        return WhatIf(name=change.name, native=speed(native) / none, ours=speed("goodput") / none)

    def _best_fixed(self, clients: int) -> BeyondLoad:
        without = self._at(HALVES, setups.NO_SPECULATION, clients)
        gains = [self._at(HALVES, each.name, clients) / without for each in self._static]
        best = int(np.argmax(gains))
        return BeyondLoad(clients=clients, best_k=best + 1, gain=gains[best])


def _tpot(outcomes: Sequence[Outcome], tokens: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in ms over the requests of all loads, which have so many tokens each."""
    values = np.concatenate([each.tpot_seconds for each in outcomes])
    weights = np.concatenate(
        [
            np.full(len(each.tpot_seconds), emitted / each.tokens_per_second)
            * each.requests_per_second
            / max(len(each.tpot_seconds), 1)
            for each, emitted in zip(outcomes, tokens, strict=True)
        ]
    )
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    at = [int(np.searchsorted(reached, quantile)) for quantile in (0.5, 0.99)]
    p50, p99 = (1e3 * float(values[order[min(place, len(values) - 1)]]) for place in at)
    return p50, p99
