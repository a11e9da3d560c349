"""Advice: predictions of all set-ups, the set-up to take, and how sure that is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.advice import running, setups
from adaptive_spec.sim.advice.fixed_k import prompt_tokens
from adaptive_spec.sim.advice.observed import Observed, observe
from adaptive_spec.sim.advice.runs import Run, Runs
from adaptive_spec.sim.advice.setups import SetUp
from adaptive_spec.sim.advice.values import (
    CANNOT_TELL,
    NO,
    SELDOM,
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
    World,
    changes,
    halves,
    recorded_world,
)
from adaptive_spec.sim.hardware.from_trace import (
    LARGEST_FIT_ERROR,
    TimedSteps,
    TraceFit,
    drafted_alike,
    read_timed_steps,
)
from adaptive_spec.sim.off_policy.intervals import Estimate, student_t

CONFIDENCE = 0.95
FIRST_LOOK = 2
"""Resamplings behind the first answer."""
_BLOCK_TOKENS = 16
"""Of a KV block: vLLM's default."""
_FEW_TRIALS = 200
_LEAST_SHOWN = 0.001
_MOST_CLIENTS = 1024
_MODEL_ERROR, _SELDOM_ERROR = 0.005, 0.025
"""Relative error of predicted tokens per step that more traffic does not take away: in the judge
.5 % (root mean square) for the K that ran, up to 2.7 % for a K that hardly ran."""
_OTHER = {HALVES[0]: HALVES[1], HALVES[1]: HALVES[0]}


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """All that an advice is made of but what its gain is expressed in.

    Attributes:
        advice: with a verdict only where nothing can be predicted.
        missing: what the trace lacks; "": nothing.
        most: the trace does not show what drafting costs, so gains are at most the true ones.
        resamplings: behind the intervals.
        pool_tokens, mean_context: as `Observed` has them.
    """

    advice: Advice
    missing: str = ""
    most: bool = False
    resamplings: int = 0
    pool_tokens: int | None = None
    mean_context: float = 0.0

    def conclude(self, fleet: Fleet | None = None) -> Advice:
        """Return the advice with its verdict."""
        if not self.advice.predictions:
            return self.advice
        verdict = decide(
            self.advice, fleet or Fleet(), self.missing, self.resamplings, most=self.most
        )
        if self.most and verdict.worth is not NO:
            # The gain over a server that drafts without use says nothing of one without drafter.
            verdict = _no_prediction(self.missing)
            return msgspec.structs.replace(
                self.advice, verdict=verdict, predictions=[], what_if=[], by_clients=[]
            )
        return msgspec.structs.replace(self.advice, verdict=verdict)


def predict(
    traces: Sequence[Path],
    *,
    engine: str = "vllm",
    drafter: str = "",
    runs: str = "",
    resamplings: int = 8,
    tokens: int = FEWEST_TOKENS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    first_look: Callable[[Predicted], None] = lambda predicted: None,
) -> Predicted:
    """Read traces and predict what each set-up would have given.

    Args:
        traces: folders or segments of step traces of one server set-up.
        engine: whose own set-ups are compared, of `setups.ENGINES`.
        drafter: of `adaptive_spec.sim.drafters`; "": by what the engine recorded of it.
        runs: what the operator runs without this package, see `running.stated`; "": what the trace
            says.
        resamplings: bootstrap worlds behind the intervals, >= 2.
        tokens: fewest tokens of a simulated load.
        seed: of all draws.
        progress: called with the loads simulated and the loads in all.
        first_look: called with the prediction after `FIRST_LOOK` resamplings, without other
            traffic than was recorded.

    Raises DataError if the traces hold no measured steps or no verified drafts, ConfigError if
    `runs` is not understood.
    """
    observed = observe(traces, seed=seed)
    present, said = _present(observed, runs, engine)
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
        runs="" if present is None else present.name,
        runs_said=said,
        runs_share=0.0 if present is None else running.share_that_ran(present, observed.ran),
        verdict=Verdict(worth=CANNOT_TELL, sentence="", answers=[], recommended=[]),
    )
    found = Predicted(
        advice=seen, pool_tokens=observed.pool_tokens, mean_context=observed.mean_context
    )

    def refused(verdict: Verdict, fit: TraceFit | None = None) -> Predicted:
        advice = msgspec.structs.replace(seen, verdict=verdict, fit=fit)
        return msgspec.structs.replace(found, advice=advice)

    try:
        steps = read_timed_steps(traces, one_depth=True)
    except DataError as error:
        return refused(_no_prediction(str(error)))
    if observed.acceptance.lengths.max() < 2:
        return refused(_no_prediction("every request has one output token: drafts are of no use"))
    drafts_by_look_up = observed.capability is not None and not observed.capability.off_pass
    loads = [load.clients for load in seen.loads]
    simulated = sorted({*loads, *(2 * clients for clients in loads)})
    done = itertools.count(1)
    total = len(simulated) + len(loads)

    def advance() -> None:
        number = next(done)
        progress(number, max(total, number))

    whole = recorded_world(
        observed,
        steps,
        drafter=drafter or ("ngram" if drafts_by_look_up else "eagle"),
        seed=seed,
        loads=simulated,
        tokens=tokens,
        progress=advance,
    )
    if refusal := _no_fit(whole.fit):
        return refused(refusal, whole.fit)
    kept = [] if drafts_by_look_up else _kept_in_memory(observed, drafter)
    seen = msgspec.structs.replace(seen, fit=whole.fit, kept_at_zero=kept)
    predictor = _Predictor(seen, whole, steps, resamplings, present)
    missing = "" if steps.shows_drafting else drafted_alike(steps)

    def predicted(count: int, *, complete: bool) -> Predicted:
        return msgspec.structs.replace(
            found,
            advice=predictor.predict(count, complete=complete),
            missing=missing or _more_drafts(seen, observed),
            most=bool(missing),
            resamplings=count,
        )

    first_look(predicted(min(FIRST_LOOK, resamplings), complete=False))
    return predicted(resamplings, complete=True)


def _present(observed: Observed, runs: str, engine: str) -> tuple[SetUp | None, str]:
    """Return what the operator runs, None if that is not known, and the same in words."""
    if runs:
        found = running.stated(runs, observed.kmax, engine)
        return found, running.described(found)
    recorded = running.recorded(observed.engine_k, observed.kmax, engine)
    if recorded is None:
        return None, (
            "not known: the engine's own K follows more than the batch size; name its file or "
            "JSON with --runs"
        )
    source = "inferred from the trace" if observed.engine_k else "if that is what you run"
    return recorded, f"{running.described(recorded)}, {source}"


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


def _no_fit(fit: TraceFit) -> Verdict | None:
    if fit.usable:
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
        self._static = [setups.static(k, seen.engine) for k in range(1, seen.kmax + 1)]
        self._ours = setups.ours(seen.kmax, seen.engine)
        self._present = [] if present is None else [present]

    def predict(self, resamplings: int, *, complete: bool) -> Advice:
        """Return the advice with all predictions and without a verdict.

        Args:
            resamplings: behind the intervals.
            complete: with other traffic than was recorded.
        """
        self._drawn = self._resampled[:resamplings]
        self._changes = self._every_change if complete else []
        self._runs.make(
            (half, each, clients)
            for half in HALVES
            for each in (self._none, *self._static, self._warm)
            for clients in (*self._loads, *self._beyond)
        )
        own = {half: self._tuned(half) for half in HALVES}
        self._runs.make(
            (half, each, clients)
            for half in HALVES
            for each in (own[_OTHER[half]], self._ours, *self._present)
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
        return self._runs.speed(world, name, self._loads, self._tokens)

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
            for each in (self._none, *self._static, *present, shown, self._ours)
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


def _kept_in_memory(observed: Observed, drafter: str) -> list[str]:
    """Say what a drafter with a model holds of the KV pool, and computes of prompts, at K = 0."""
    running = sum(load.share * load.clients for load in observed.loads)
    said = f"{observed.kmax} tokens of KV behind each request"
    if observed.pool_tokens:
        said += f", {100 * running * observed.kmax / observed.pool_tokens:.2f} % of the pool"
    first_token = (
        "of the first token the drafter's part, which no trace tells, as it was always there: "
        "`doctor --recipe` says about how much"
    )
    if drafter == "draft_model":
        return [said, first_token]
    prompt = float(np.mean(prompt_tokens(observed.acceptance)))
    return [
        said,
        first_token,
        "EAGLE and MTP before vLLM 0.33 compute the last cached block of each prompt again, at "
        f"most {100 * min(_BLOCK_TOKENS / prompt, 1.0):.1f} % of the prompts' tokens",
    ]


def _more_drafts(seen: Advice, observed: Observed) -> str:
    """Say which draft positions were verified too seldom; "" if none was."""
    trials = observed.acceptance.lengths.sum() * np.array(
        [sum(share for k, share in seen.k_share.items() if k > j) for j in range(seen.kmax)]
    )
    shallow = int((trials >= _FEW_TRIALS).sum())
    if shallow == seen.kmax:
        return ""
    return f"positions beyond {shallow} were verified fewer than {_FEW_TRIALS} times"
