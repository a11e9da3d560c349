"""Advice: predictions of all set-ups, the set-up to take, and how sure that is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.advice import setups
from adaptive_spec.sim.advice.observed import KindFacts, LoadFacts, Observed, observe
from adaptive_spec.sim.advice.setups import SetUp
from adaptive_spec.sim.advice.worlds import FEWEST_TOKENS, Outcome, World, worlds
from adaptive_spec.sim.hardware.from_trace import TraceFit, read_timed_steps
from adaptive_spec.sim.off_policy.intervals import Estimate, student_t

CONFIDENCE = 0.95
_WORTH_IT = 1.01
"""Least gain for which a drafter's memory and upkeep are worth it."""
_SURE = 0.03
"""Half an interval, relative, below which more data would not change the advice."""
_FEW_TRIALS = 200
_MOST_CLIENTS = 1024

Runs = dict[tuple[str, int], list[Outcome]]
"""Outcome by set-up and load, one per world."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """One set-up.

    Attributes:
        name: of the set-up.
        by_load: tokens per second at each load of `Advice.loads`.
        tokens_per_second: over the recorded mix of loads.
        gain: that over no speculation.
        tpot_ms: p50 and p99 over requests of the recorded mix.
        lines: what to paste.
    """

    name: str
    by_load: list[Estimate]
    tokens_per_second: Estimate
    gain: Estimate
    tpot_ms: tuple[float, float]
    lines: list[str]


class BeyondLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Best fixed K over no speculation at a load, recorded or up to four times the largest.

    Attributes:
        clients: requests at a time.
        best_k: the best fixed K >= 1.
        gain: its throughput over that without a drafter.
    """

    clients: int
    best_k: int
    gain: Estimate


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the command prints.

    Attributes:
        loads, kinds, overall, k_share, modes, kmax: what was recorded, see `observed`.
        fit: agreement of the fitted step times; None without predictions.
        predictions: set-ups, no speculation first.
        by_clients: best fixed K by load.
        leave_out_from: smallest load from which on no K gains; None: at none that was simulated.
        verdict: what to do, a sentence.
        recommended: names of the set-ups whose lines to paste, ours first.
        certainty: sentences on how sure this is and what more data would settle.
        memory: sentences on what the drafter's memory costs.
    """

    loads: list[LoadFacts]
    kinds: list[KindFacts]
    overall: LoadFacts
    k_share: dict[int, float]
    modes: dict[str, float]
    kmax: int
    fit: TraceFit | None = None
    predictions: list[Prediction] = []
    by_clients: list[BeyondLoad] = []
    leave_out_from: int | None = None
    verdict: str = ""
    recommended: list[str] = []
    certainty: list[str] = []
    memory: list[str] = []


def advise(
    traces: Sequence[Path],
    *,
    drafter: str = "",
    resamplings: int = 4,
    tokens: int = FEWEST_TOKENS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Advice, Observed]:
    """Read traces and predict what each set-up would have given.

    Args:
        traces: folders or segments of step traces of one server set-up.
        drafter: of `adaptive_spec.sim.drafters`; "": by what the engine recorded of it.
        resamplings: bootstrap worlds behind the intervals, >= 2.
        tokens: fewest tokens of a simulated run; more narrow the intervals.
        seed: of all draws.
        progress: called with runs done and in all.

    Raises DataError if the traces hold no measured steps or no verified drafts.
    """
    observed = observe(traces, seed=seed)
    seen = Advice(
        loads=observed.loads,
        kinds=observed.kinds,
        overall=observed.overall,
        k_share=observed.k_share,
        modes=observed.modes,
        kmax=observed.kmax,
    )
    try:
        steps = read_timed_steps(traces)
    except DataError as error:
        verdict = "no prediction: the trace cannot tell what other K cost"
        return msgspec.structs.replace(seen, verdict=verdict, certainty=[*_varied(error)]), observed
    drafts_by_look_up = observed.capability is not None and not observed.capability.off_pass
    name = drafter or ("ngram" if drafts_by_look_up else "eagle")
    found = list(worlds(observed, steps, drafter=name, count=resamplings, seed=seed, tokens=tokens))
    return _predicted(seen, observed, found, progress), observed


def _varied(error: DataError) -> tuple[str, str]:
    return (
        str(error),
        "record some minutes at the loads that you serve, in mode `on` with policy `thompson` or "
        "`goodput`, then ask again: K must vary",
    )


def _predicted(
    seen: Advice,
    observed: Observed,
    found: Sequence[World],
    progress: Callable[[int, int], None],
) -> Advice:
    loads = [load.clients for load in seen.loads]
    beyond = [n for n in (2 * loads[-1], 4 * loads[-1]) if n <= _MOST_CLIENTS]
    none, warm = setups.no_speculation(), setups.warm_zero()
    static = [setups.static(k) for k in range(1, seen.kmax + 1)]
    fixed = list(itertools.product([none, *static], [*loads, *beyond]))
    fixed += [(warm, clients) for clients in loads]
    total = len(found) * (len(fixed) + 4 * len(loads)) + 3 * len(loads)
    done = itertools.count(1)
    runs: Runs = {}

    def run(set_up: SetUp, clients: int, some: Sequence[World]) -> list[Outcome]:
        outcomes = []
        for world in some:
            outcomes.append(world.run(set_up, clients))
            progress(next(done), total)
        return outcomes

    for set_up, clients in fixed:
        runs[set_up.name, clients] = run(set_up, clients, found)

    def speeds(zero: SetUp) -> setups.Speeds:
        return {
            clients: {
                k: _estimate([each.tokens_per_second for each in runs[set_up.name, clients]]).value
                for k, set_up in enumerate([zero, *static])
            }
            for clients in loads
        }

    lists = setups.sglang_lists(speeds(warm))
    shares = [load.share for load in seen.loads]
    tried = [
        sum(
            share * run(each, clients, found[:1])[0].tokens_per_second
            for share, clients in zip(shares, loads, strict=True)
        )
        for each in lists
    ]
    chosen = [
        setups.vllm_table(speeds(warm)),
        lists[int(np.argmax(tried))],
        setups.tensorrt_llm_schedule(speeds(none)),
        setups.ours(seen.kmax),
    ]
    for set_up, clients in itertools.product(chosen, loads):
        runs[set_up.name, clients] = run(set_up, clients, found)
    predictions = [_prediction(set_up, runs, loads, shares) for set_up in (none, *static, *chosen)]
    by_clients = [_best_fixed(runs, static, clients) for clients in (*loads, *beyond)]
    left_out = list(itertools.takewhile(lambda each: each.gain.value <= 1.0, by_clients[::-1]))
    verdict, recommended = _verdict(predictions)
    return msgspec.structs.replace(
        seen,
        fit=found[0].fit,
        predictions=predictions,
        by_clients=by_clients,
        leave_out_from=left_out[-1].clients if left_out else None,
        verdict=verdict,
        recommended=recommended,
        certainty=_certainty(seen, found[0].fit, predictions, observed),
    )


def _prediction(
    set_up: SetUp, runs: Runs, loads: Sequence[int], shares: Sequence[float]
) -> Prediction:
    def mixed(name: str) -> list[float]:
        """Tokens per second over the mix of loads, by world."""
        speeds = [[each.tokens_per_second for each in runs[name, load]] for load in loads]
        return [float(value) for value in np.array(shares) @ np.array(speeds)]

    own, without = mixed(set_up.name), mixed(setups.NO_SPECULATION)
    recorded = [runs[set_up.name, load][0] for load in loads]
    return Prediction(
        name=set_up.name,
        by_load=[
            _estimate([each.tokens_per_second for each in runs[set_up.name, load]])
            for load in loads
        ],
        tokens_per_second=_estimate(own),
        gain=_estimate([a / b for a, b in zip(own, without, strict=True)]),
        tpot_ms=_tpot(recorded, shares),
        lines=set_up.lines,
    )


def _estimate(values: Sequence[float]) -> Estimate:
    """Value of the recorded world, and an interval by the spread of the resampled ones."""
    spread = float(np.std(values[1:], ddof=1))
    half = student_t(CONFIDENCE, len(values) - 2) * spread
    return Estimate(values[0], max(values[0] - half, 0.0), values[0] + half)


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


def _best_fixed(runs: Runs, static: Sequence[SetUp], clients: int) -> BeyondLoad:
    without = [each.tokens_per_second for each in runs[setups.NO_SPECULATION, clients]]
    gains = [
        _estimate(
            [
                own.tokens_per_second / none
                for own, none in zip(runs[set_up.name, clients], without, strict=True)
            ]
        )
        for set_up in static
    ]
    best = max(range(len(gains)), key=lambda place: gains[place].value)
    return BeyondLoad(clients=clients, best_k=best + 1, gain=gains[best])


def _verdict(predictions: Sequence[Prediction]) -> tuple[str, list[str]]:
    best = max(predictions[1:], key=lambda each: each.gain.value)
    ours = next(each for each in predictions if each.name == setups.OURS)
    gain = f"{_percent(best.gain.value)} ({_percent(best.gain.low)} to {_percent(best.gain.high)})"
    if best.gain.value < _WORTH_IT:
        return (
            f"leave speculation off: the best set-up, {best.name}, changes throughput by {gain}",
            [setups.NO_SPECULATION],
        )
    if best.gain.low <= 1.0:
        return (
            f"not clear: the best set-up, {best.name}, changes throughput by {gain} over none",
            [setups.OURS, setups.NO_SPECULATION],
        )
    natives = [each for each in predictions if each.name not in (setups.OURS, "none")]
    native = max(natives, key=lambda each: each.tokens_per_second.value)
    over = ours.tokens_per_second.value / native.tokens_per_second.value
    return (
        f"speculate: {ours.name} gains {_percent(ours.gain.value)} "
        f"({_percent(ours.gain.low)} to {_percent(ours.gain.high)}) over none, "
        f"{_percent(over)} over the best native set-up ({native.name})",
        [setups.OURS, setups.TABLE, setups.CANDIDATES, setups.SCHEDULE],
    )


def _certainty(
    seen: Advice, fit: TraceFit, predictions: Sequence[Prediction], observed: Observed
) -> list[str]:
    requests = observed.acceptance.records
    said = [
        f"step times: {fit.steps:,} steps, median error {fit.median_error:.1%}, predicted over "
        f"measured time {fit.total:.3f}; acceptance: {requests:,} requests",
        f"recorded loads: {seen.loads[0].clients} to {seen.loads[-1].clients} requests; "
        "larger loads extend the fitted costs in a straight line",
    ]
    best = max(each.gain.value for each in predictions)
    widest = max(
        ((each.gain.high - each.gain.low) / 2 / each.gain.value, each.name)
        for each in predictions
        if each.gain.high >= best  # others can't change the advice
    )
    if widest[0] > _SURE:
        times = (widest[0] / _SURE) ** 2
        said.append(
            f"the widest interval is ± {widest[0]:.1%} ({widest[1]}): a trace about "
            f"{times:.0f} times as long would bring it to ± {_SURE:.0%}"
        )
    trials = observed.acceptance.lengths.sum() * np.array(
        [sum(share for k, share in seen.k_share.items() if k > j) for j in range(seen.kmax)]
    )
    shallow = int((trials >= _FEW_TRIALS).sum())
    if shallow < seen.kmax:
        said.append(
            f"positions beyond {shallow} were verified fewer than {_FEW_TRIALS} times: "
            "record with a larger K to settle them"
        )
    return said


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
