"""Advice: predictions of all set-ups, the set-up to take, and how sure that is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.advice import setups
from adaptive_spec.sim.advice.observed import Observed, observe
from adaptive_spec.sim.advice.runs import Run, Runs
from adaptive_spec.sim.advice.setups import SetUp
from adaptive_spec.sim.advice.values import (
    CANNOT_TELL,
    NO,
    Advice,
    BeyondLoad,
    Fleet,
    Prediction,
    Verdict,
    WhatIf,
)
from adaptive_spec.sim.advice.verdict import decide
from adaptive_spec.sim.advice.worlds import (
    FEWEST_TOKENS,
    HALVES,
    Change,
    Outcome,
    changes,
    halves,
    recorded_world,
)
from adaptive_spec.sim.hardware.from_trace import (
    TimedSteps,
    TraceFit,
    drafted_alike,
    read_timed_steps,
)
from adaptive_spec.sim.off_policy.intervals import Estimate, student_t

CONFIDENCE = 0.95
_FEW_TRIALS = 200
_MOST_CLIENTS = 1024
_OTHER = {HALVES[0]: HALVES[1], HALVES[1]: HALVES[0]}


def advise(
    traces: Sequence[Path],
    *,
    engine: str = "vllm",
    drafter: str = "",
    fleet: Fleet | None = None,
    resamplings: int = 8,
    tokens: int = FEWEST_TOKENS,
    seed: int = 0,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Advice, Observed]:
    """Read traces and predict what each set-up would have given.

    Args:
        traces: folders or segments of step traces of one server set-up.
        engine: whose own set-ups are compared, of `setups.ENGINES`.
        drafter: of `adaptive_spec.sim.drafters`; "": by what the engine recorded of it.
        fleet: what the verdict expresses the gain in; None: GPU time alone.
        resamplings: bootstrap worlds behind the intervals, >= 2.
        tokens: fewest tokens of a simulated run; more narrow the intervals.
        seed: of all draws.
        jobs: processes; None: one per CPU.
        progress: called with the runs done and the runs in all.

    Raises DataError if the traces hold no measured steps or no verified drafts.
    """
    observed = observe(traces, seed=seed)
    seen = Advice(
        engine=engine,
        loads=observed.loads,
        kinds=observed.kinds,
        overall=observed.overall,
        k_share=observed.k_share,
        modes=observed.modes,
        kmax=observed.kmax,
        seconds=observed.seconds,
        requests=observed.acceptance.records,
        verdict=Verdict(worth=CANNOT_TELL, sentence="", answers=[], recommended=[]),
    )
    try:
        steps = read_timed_steps(traces, one_depth=True)
    except DataError as error:
        return msgspec.structs.replace(seen, verdict=_no_prediction(str(error))), observed
    missing = "" if steps.shows_drafting else drafted_alike(steps)
    drafts_by_look_up = observed.capability is not None and not observed.capability.off_pass
    name = drafter or ("ngram" if drafts_by_look_up else "eagle")
    fit = recorded_world(observed, steps, drafter=name, seed=seed, tokens=tokens).fit
    seen = msgspec.structs.replace(seen, fit=fit)
    if refusal := _no_fit(fit):
        return msgspec.structs.replace(seen, verdict=refusal), observed
    predicted = _Predictor(
        seen, observed, steps, name, resamplings=resamplings, tokens=tokens, seed=seed
    ).predict(jobs, progress)
    verdict = decide(
        predicted,
        fleet or Fleet(),
        missing or _more_drafts(predicted, observed),
        resamplings,
        most=bool(missing),
    )
    if missing and verdict.worth is not NO:
        # The gain over a server that drafts without use says nothing of one without drafter.
        return msgspec.structs.replace(seen, verdict=_no_prediction(missing)), observed
    return msgspec.structs.replace(predicted, verdict=verdict), observed


def _no_prediction(error: str) -> Verdict:
    return Verdict(
        worth=CANNOT_TELL,
        sentence="cannot tell: the trace does not show what other K cost",
        answers=[
            ("Missing", error),
            (
                "Record",
                "some minutes at the loads that you serve, with K that vary: mode `on`, or mode "
                "`shadow` with `shadow_share`, which runs another K in that share of the steps",
            ),
        ],
        recommended=[],
    )


LARGEST_FIT_ERROR = 0.15
"""Median relative error of the fitted step times beyond which predictions are worthless."""


def _no_fit(fit: TraceFit) -> Verdict | None:
    if fit.median_error <= LARGEST_FIT_ERROR:
        return None
    return Verdict(
        worth=CANNOT_TELL,
        sentence=(
            "cannot tell: step times on this machine are not predictable "
            f"(median error {fit.median_error:.0%}, at most {LARGEST_FIT_ERROR:.0%} is usable)"
        ),
        answers=[
            ("Why", "the same batch takes different times: other work shares the machine"),
            ("Do", "record on an idle or dedicated machine; more of the same data will not help"),
        ],
        recommended=[],
    )


class _Predictor:
    """Simulates all set-ups on both halves, their resamplings and other traffic."""

    def __init__(
        self,
        seen: Advice,
        observed: Observed,
        steps: TimedSteps,
        drafter: str,
        *,
        resamplings: int,
        tokens: int,
        seed: int,
    ) -> None:
        self._seen = seen
        self._loads = [load.clients for load in seen.loads]
        self._shares = [load.share for load in seen.loads]
        largest = self._loads[-1]
        self._beyond = [n for n in (2 * largest, 4 * largest) if n <= _MOST_CLIENTS]
        self._worlds = halves(
            observed, steps, drafter=drafter, count=-(-resamplings // 2), seed=seed, tokens=tokens
        )
        self._drawn = [name for name in self._worlds if name not in HALVES][:resamplings]
        self._changes = changes(observed)
        for change in self._changes:
            for half in HALVES:
                self._worlds[f"{half}: {change.name}"] = change.of(self._worlds[half])
        self._none, self._warm = setups.no_speculation(), setups.warm_zero()
        self._static = [setups.static(k, seen.engine) for k in range(1, seen.kmax + 1)]
        self._ours = setups.ours(seen.kmax, seen.engine)

    def predict(self, jobs: int | None, progress: Callable[[int, int], None]) -> Advice:
        """Return the advice with all predictions and without a verdict."""
        with Runs(self._worlds, jobs=jobs, progress=progress) as self._runs:
            fixed = [
                (half, each, clients)
                for half in HALVES
                for each in (self._none, *self._static)
                for clients in (*self._loads, *self._beyond)
            ]
            fixed += [(half, self._warm, clients) for half in HALVES for clients in self._loads]
            loads = len(self._loads)
            later = 2 * 2 + 4 * len(self._drawn) + 6 * len(self._changes)
            self._runs.expected = len(fixed) + later * loads
            self._runs.make(fixed)
            own = {half: self._tuned(half) for half in HALVES}
            self._runs.make(
                (half, each, clients)
                for half in HALVES
                for each in (own[_OTHER[half]], self._ours)
                for clients in self._loads
            )
            native = self._best_native(own)
            self._runs.make(self._paired_runs(own, native))
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
        self._runs.make((half, each, clients) for each in named for clients in self._loads)
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
        return self._runs.speed(world, name, self._loads, self._shares)

    def _gain(self, name: str, over: str = setups.NO_SPECULATION) -> float:
        """Ratio of two set-ups' tokens per second over both halves."""
        return sum(self._speed(half, name) for half in HALVES) / sum(
            self._speed(half, over) for half in HALVES
        )

    def _best_native(self, own: Mapping[str, SetUp]) -> SetUp:
        candidates = [*self._static, own[HALVES[0]]]
        return max(candidates, key=lambda each: self._gain(each.name))

    def _paired_runs(self, own: Mapping[str, SetUp], native: SetUp) -> list[Run]:
        """Runs for the intervals and for other traffic: a table meets the half it was not tuned on.

        Of a fixed K, every half is the other one.
        """
        wanted: list[Run] = []

        def add(world: str, half: str, factor: int = 1) -> None:
            tuned = own[_OTHER[half]]
            named = {each.name: each for each in (self._none, native, self._ours)}
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

        A resampling holds half of the trace, so the whole has half of its variance.
        """
        value = self._gain(name, over)
        apart = []
        for world in self._drawn:
            half = world.split("/")[0]
            middle = self._speed(half, name) / self._speed(half, over)
            apart.append(self._speed(world, name) / self._speed(world, over) - middle)
        spread = math.sqrt(float(np.mean(np.square(apart))) / len(HALVES))
        half_width = student_t(CONFIDENCE, len(apart)) * spread
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
        decided = (native.name, setups.OURS)
        predictions = [
            self._prediction(each, each.name in decided)
            for each in (self._none, *self._static, shown, self._ours)
        ]
        by_clients = [self._best_fixed(clients) for clients in (*self._loads, *self._beyond)]
        left_out = list(itertools.takewhile(lambda each: each.gain <= 1.0, by_clients[::-1]))
        return msgspec.structs.replace(
            self._seen,
            predictions=predictions,
            native=native.name,
            over_native=self._interval(setups.OURS, native.name),
            what_if=[self._what_if(change, native.name) for change in self._changes],
            by_clients=by_clients,
            leave_out_from=left_out[-1].clients if left_out else None,
        )

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
            tpot_ms=_tpot(recorded, 2 * self._shares),
            lines=set_up.lines,
        )

    def _what_if(self, change: Change, native: str) -> WhatIf:
        worlds = [f"{half}: {change.name}" for half in HALVES]
        loads = [change.load * clients for clients in self._loads]

        def speed(name: str) -> float:
            return sum(self._runs.speed(world, name, loads, self._shares) for world in worlds)

        none = speed(setups.NO_SPECULATION)
        return WhatIf(name=change.name, native=speed(native) / none, ours=speed("goodput") / none)

    def _best_fixed(self, clients: int) -> BeyondLoad:
        without = self._at(HALVES, setups.NO_SPECULATION, clients)
        gains = [self._at(HALVES, each.name, clients) / without for each in self._static]
        best = int(np.argmax(gains))
        return BeyondLoad(clients=clients, best_k=best + 1, gain=gains[best])


def _tpot(outcomes: Sequence[Outcome], shares: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in ms over the requests of all loads, each load by its share of the time."""
    values = np.concatenate([each.tpot_seconds for each in outcomes])
    weights = np.concatenate(
        [
            np.full(len(each.tpot_seconds), share * each.requests_per_second)
            / max(len(each.tpot_seconds), 1)
            for each, share in zip(outcomes, shares, strict=True)
        ]
    )
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    at = [int(np.searchsorted(reached, quantile)) for quantile in (0.5, 0.99)]
    p50, p99 = (1e3 * float(values[order[min(place, len(values) - 1)]]) for place in at)
    return p50, p99


def _more_drafts(seen: Advice, observed: Observed) -> str:
    """Say which draft positions were verified too seldom; "" if none was."""
    trials = observed.acceptance.lengths.sum() * np.array(
        [sum(share for k, share in seen.k_share.items() if k > j) for j in range(seen.kmax)]
    )
    shallow = int((trials >= _FEW_TRIALS).sum())
    if shallow == seen.kmax:
        return ""
    return f"positions beyond {shallow} were verified fewer than {_FEW_TRIALS} times"
