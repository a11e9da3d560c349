"""The measured gain (audit) against whole runs, on the judge's modelled clock.

    python -m benchmarks.measured_gain run --seeds 1-12 --out rows.jsonl     # in either environment
    python -m benchmarks.measured_gain table rows.jsonl
    python -m benchmarks.measured_gain widths rows.jsonl
    python -m benchmarks.measured_gain planted
    python -m benchmarks.measured_gain hours rows.jsonl

`run` answers each load of measured_gain.yaml with the engine's own K, with the policy, and with the
policy audited. The truth of a load is the ratio of tokens per second of the first two over the
seeds that have them (`--whole`); where requests arrive in time there is none, as both answer at the
rate of their coming.
`table` holds the blocks of all seeds against it, and counts how often it lies in the 95 % sequence
of a run with enough of them, at its end and at all of its blocks. `widths` prints half-widths by
time and load, and what the audit costs. `planted` lets policies decide that lose, until the guard
hands back; K = 0 keeps the drafter warm there, since no block begins while it is off. `hours` gives
the guard 10,000 hours of differences: those of the rows, around a true gain.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.audit import confidence_sequence
from adaptive_spec.audit.gain import Difference, PairedDifferences
from adaptive_spec.audit.guard import Guard
from adaptive_spec.config import Audit
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.sim.line_file import LineFile
from adaptive_spec.step import SpecPlan, StepContext

from .judge.arms import MOST_REQUESTS, NO_AUDIT, Arm
from .judge.clock import Noise
from .judge.device import device
from .judge.engines import SGLANG, VLLM, Engine, EngineKind, Name
from .judge.figures import markdown
from .judge.processes import begin_anew
from .judge.run import NOISE_SEED, seeds_of
from .judge.start import environment, installed, start
from .judge.traffic import PAUSE_SECONDS, Arrivals, Piece, Traffic, jobs, serve

LOADS = Path(__file__).with_suffix(".yaml")
DENSE = 0.25
"""Share of the blocks where runs are short."""
ERROR = 0.05
KMAX = 7
RUN_BLOCKS, DRAWN_HOURS = 24, 40
BLOCKS_AN_HOUR = 100
"""At a share of 1 %: between those of 64 requests and of 8."""


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load, and the engine's own K for it; `mixed`: of very different kinds of text."""

    name: str
    k: int
    device: str = "h100-8b"
    clients: int = 0
    requests: int = 0
    pieces: tuple[tuple[int, int], ...] = ()
    arrivals: Arrivals | None = None
    records: tuple[str, ...] = ("llama:both",)
    mixed: bool = False
    lengths: str = "records"
    prompts: int = 0
    noise: float = 0.0

    @property
    def traffic(self) -> Traffic:
        """The load: requests, prompts and lengths."""
        pieces = tuple(Piece(*piece) for piece in self.pieces)
        if self.clients:
            pieces = (Piece(self.clients, self.requests),)
        return Traffic(
            pieces=pieces,
            arrivals=self.arrivals,
            records=self.records,
            lengths=self.lengths,
            longest=384,
            prompts=self.prompts,
        )


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A run.

    Attributes:
        engine, load, seed, arm: which; arms are ``engine``, ``policy`` and ``audited``.
        tokens, seconds: until the last request was sent.
        share: of the steps in blocks.
        differences: value, weight, load class and time of each pair.
        left_out: pairs left out, by reason.
        off_cold: share of the steps that could begin no block.
        handed_back: how often the guard handed back.
    """

    engine: str
    load: str
    seed: int
    arm: str
    tokens: int
    seconds: float
    share: float = 0.0
    differences: list[tuple[float, float, int, float]] = []
    left_out: dict[str, int] = {}
    off_cold: float = 0.0
    handed_back: int = 0


class _Recorded(PairedDifferences):
    """Remembers what it has found."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Difference] = []

    def add(self, *arguments: Any) -> Difference | None:
        found = super().add(*arguments)
        if found is not None:
            self.found.append(found)
        return found


def answer(engine: Engine, name: str, load: Load, seed: int, arm: str, audit: Audit) -> Ran:
    """Let an arm answer a load."""
    own = [(1, MOST_REQUESTS, load.k)] if name == VLLM else None
    decides = Arm(arm, arm, k=load.k)
    if arm != "engine":
        decides = Arm(arm, arm, table=own, policy="goodput", seed=seed, audit=audit)
    engine.use(decides, device(load.device))
    recorder, recorded = engine.recorder, _Recorded()
    recorder.noise = Noise(load.noise, NOISE_SEED + seed)
    if arm != "engine":
        if name == SGLANG:
            _let_own_k_be(engine, load.k)
        auditor: Any = engine.controller._auditor  # type: ignore[attr-defined]
        auditor._differences = recorded
    began = recorder.clock()
    sent = serve(engine, load.traffic, jobs(load.traffic, "eagle", KMAX, seed)).sent
    # As in the judge: until the last request was sent, while so many clients ask.
    seconds = sum(recorder.seconds[:sent])
    tokens = sum(work.emitted for work in recorder.pop_steps()[:sent])
    audited = engine.status()["audit"] if arm != "engine" else {}
    return Ran(
        engine=name,
        load=load.name,
        seed=seed,
        arm=arm,
        tokens=tokens,
        seconds=seconds,
        share=audit.share,
        differences=[
            (each.value, each.weight, each.load, round(each.now - began, 3))
            for each in recorded.found
            if each.now - began <= seconds + PAUSE_SECONDS
        ],
        left_out=dict(recorded.left_out),
        off_cold=audited.get("off_cold", 0.0),
        handed_back=audited.get("times_handed_back", 0),
    )


def _let_own_k_be(engine: Any, k: int) -> None:
    """Let SGLang's own schedule be one K, while all others may run."""
    params = engine.scheduler.draft_worker.adaptive_controller.params
    params.own.get_steps_for_batch = lambda _: k


def _engine() -> Name:
    """Return the engine that is installed here; begin anew with the variables that it needs."""
    name = VLLM if installed(VLLM) else SGLANG
    begin_anew("benchmarks.measured_gain", environment(name))
    return name


def run(given: argparse.Namespace) -> None:
    """Answer each load with each arm."""
    name = _engine()
    loads = msgspec.yaml.decode(LOADS.read_bytes(), type=list[Load])
    seeds = seeds_of(given.seeds)
    file = LineFile(given.out, Ran)
    engine = start(EngineKind(kmax=KMAX, engine=name, ahead=given.ahead))
    for load in loads:
        if given.loads and not any(part in load.name for part in given.loads.split(",")):
            continue
        began = time.monotonic()
        for seed in seeds:
            arms = [("audited", Audit(share=given.share, guard=False))]
            if seed < seeds.start + given.whole:
                arms += [("engine", NO_AUDIT), ("policy", NO_AUDIT)]
            for arm, audit in arms:
                file.append(answer(engine, name, load, seed, arm, audit))
        print(f"{load.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    os._exit(0)  # nothing of a scripted engine wants an orderly end


def _rows(paths: Iterable[Path]) -> list[Ran]:
    return [row for path in paths for row in LineFile(path, Ran)]


def _by_load(rows: list[Ran]) -> Iterator[tuple[str, list[Ran]]]:
    """Yield the rows of each engine and load."""
    for key in dict.fromkeys((row.engine, row.load) for row in rows):
        yield ", ".join(key), [row for row in rows if (row.engine, row.load) == key]


def _rate(rows: Iterable[Ran], arm: str) -> float:
    """Return tokens per second of an arm over all of its runs."""
    same = [row for row in rows if row.arm == arm]
    return sum(row.tokens for row in same) / sum(row.seconds for row in same)


Pairs = list[tuple[float, float]]
"""Values and weights of differences, in order."""


def runs_of(rows: Iterable[Ran]) -> list[Pairs]:
    """Join the pairs of successive seeds to runs of `RUN_BLOCKS`."""
    every = [(value, weight) for row in rows for value, weight, _, _ in row.differences]
    return [every[at : at + RUN_BLOCKS] for at in range(0, len(every), RUN_BLOCKS)]


def held(runs: Iterable[Pairs], truth: float) -> tuple[int, int]:
    """Return how many runs hold the truth in their interval after every pair, and all runs.

    Runs with too few pairs for an interval are left out.
    """
    good = number = 0
    for pairs in runs:
        sequence, intervals = confidence_sequence.Sequence(), []
        for pair in pairs:
            sequence.add(*pair)
            if (interval := sequence.interval(ERROR)) is not None:
                intervals.append(interval)
        number += bool(intervals)
        good += bool(intervals) and all(each.low <= truth <= each.high for each in intervals)
    return good, number


def table(given: argparse.Namespace) -> None:
    """Print the blocks of all seeds against the truth, and how often intervals of runs hold it.

    A drawn hour has as many pairs as an hour at a share of 1 %, drawn from all of a load.
    """
    rows, random, lines = _rows(given.rows), np.random.default_rng(0), list[list[str]]()
    loads = {load.name: load for load in msgspec.yaml.decode(LOADS.read_bytes(), type=list[Load])}
    sums = np.zeros(4, dtype=int)
    for key, same in _by_load(rows):
        audited = [row for row in same if row.arm == "audited"]
        every = confidence_sequence.Sequence()
        pairs = [pair for run in runs_of(audited) for pair in run]
        for pair in pairs:
            every.add(*pair)
        interval = every.interval(ERROR)
        if interval is None:
            continue
        truth, shown = math.log(_rate(same, "policy") / _rate(same, "engine")), ["–"] * 3
        load = loads[same[0].load]
        if load.arrivals is None:
            places = random.integers(len(pairs), size=(DRAWN_HOURS, BLOCKS_AN_HOUR))
            drawn = [[pairs[place] for place in hour] for hour in places]
            found = (*held(runs_of(audited), truth), *held(drawn, truth))
            if not load.mixed:
                sums += found
            held_by = "{}/{}".format(*found[:2]), "{}/{}".format(*found[2:])
            shown = [f"{math.expm1(truth):+.1%}", *held_by]
        out = sum(sum(row.left_out.values()) for row in audited)
        mean, low, high = map(math.expm1, interval)
        share_out = f"{out / max(out + every.count, 1):.0%}"
        bounds = f"{low:+.1%} to {high:+.1%}"
        lines.append([key, shown[0], f"{mean:+.1%}", bounds, str(every.count), share_out])
        lines[-1] += shown[1:]
    heads = ["engine, load", "truth", "blocks", "bounds", "number", "left out"]
    print(markdown([*heads, "runs that hold it at all blocks", "drawn hours"], lines))
    print("all loads of one kind of text: {}/{} runs, {}/{} drawn hours".format(*sums))


def widths(given: argparse.Namespace) -> None:
    """Print half-widths by time at shares of 1 and 2 %, and what the audit costs, by load.

    From the spread of the rows' differences and the seconds of their frames: at another share
    frames are longer, blocks are the same.
    """
    lines = []
    for key, same in _by_load(_rows(given.rows)):
        audited = [row for row in same if row.arm == "audited" and row.differences]
        if not audited:
            continue
        values = [np.array([value for value, *_ in row.differences]) for row in audited]
        found = np.concatenate([each - each.mean() for each in values])
        deviation = math.sqrt(float((found**2).sum()) / max(len(found) - len(audited), 1))
        blocks_a_second = len(found) / sum(row.seconds for row in audited) / DENSE
        shown = []
        for share in (0.01, 0.02):
            for seconds in (600.0, 3600.0):
                number = share * blocks_a_second * seconds
                square = number * deviation**2
                sums = (number, number, number, 0.0, 0.0, square)
                interval = confidence_sequence.Sequence(sums).interval(ERROR)
                shown.append(f"{interval.high:.1%}" if interval else "–")
        both = {row.seed for row in same if row.arm == "policy"}
        whole = [row for row in same if row.seed in both]
        cost = _rate(whole, "audited") / _rate(whole, "policy")
        at_one = f"{1.0 - (1.0 - cost) * 0.01 / DENSE:.4f}"
        lines.append([key, f"{deviation:.3f}", *shown, f"{cost:.4f}", at_one])
    times = ["1 %: 10 min", "60 min", "2 %: 10 min", "60 min"]
    heads = ["engine, load", "deviation of a block", *times]
    print(markdown([*heads, f"audited over not, at {DENSE:.0%}", "at 1 %"], lines))


class Planted(StaticPolicy):
    """Runs one K for so many steps, and then another."""

    class Options(msgspec.Struct, frozen=True, kw_only=True):
        """K before and after, and the steps before."""

        first: int
        then: int
        steps: int = 0

    def __init__(self, options: Options, *, seed: int = 0) -> None:
        super().__init__(StaticOptions(k=options.first))
        self._then, self._left = StaticPolicy(StaticOptions(k=options.then)), options.steps

    def plan(self, context: StepContext) -> SpecPlan:
        self._left -= 1
        return super().plan(context) if self._left >= 0 else self._then.plan(context)


PLANTED = {
    "Kmax always, A100 at 128, own K = 1": ("a100-8b", 1, {"first": 7, "then": 7}, ((128, 9000),)),
    "K = 0 always, H100 at 16, own K = 5": ("h100-8b", 5, {"first": 0, "then": 0}, ((16, 800),)),
    "K = 5: right at 4, wrong at 128 (A100, own K = 1)": (
        *("a100-8b", 1, {"first": 5, "then": 5}),
        ((4, 100), (128, 6000), (4, 100)),
    ),
    "good for 1,500 steps, then K = 0 (H100 at 16, own K = 2)": (
        *("h100-8b", 2, {"first": 4, "then": 0, "steps": 1500}),
        ((16, 1000),),
    ),
}


def planted(_: argparse.Namespace) -> None:
    """Print after how many blocks what loses is handed back."""
    engine: Any = start(EngineKind(kmax=KMAX, engine=_engine()))
    lines = []
    for title, (where, k, options, pieces) in PLANTED.items():
        traffic = Load(name="", k=k, pieces=pieces, device=where).traffic
        path = "benchmarks.measured_gain:Planted"
        own = [(1, MOST_REQUESTS, k)]
        arm = Arm(
            *("planted", ""),
            table=own,
            policy=path,
            options=options,
            capability={"cold_off": False},
            audit=Audit(share=DENSE, guard=True),
        )
        engine.use(arm, device(where))
        auditor, changes = engine.controller._auditor, list[tuple[int, str]]()
        observe = auditor.observe

        def watch(
            placed: Any,
            outcome: Any,
            observe: Any = observe,
            auditor: Any = auditor,
            changes: list[Any] = changes,
        ) -> Any:
            found = observe(placed, outcome)
            count = auditor._gains["engine"].all.count if "engine" in auditor._gains else 0
            changes.extend((count, change.load) for change in found if change.handed_back)
            return found

        auditor.observe = watch
        serve(engine, traffic, jobs(traffic, "eagle", KMAX, 1))
        status = engine.status()["audit"]
        first = changes[0][0] if changes else "–"
        at = ", ".join(dict.fromkeys(load for _, load in changes))
        blocks = f"{first} of {status['arms']['engine']['blocks']} blocks"
        lines.append([title, blocks, at, status["times_handed_back"]])
    print(markdown(["policy", "handed back after", "at", "times"], lines), flush=True)
    os._exit(0)


def hours(given: argparse.Namespace) -> None:
    """Print how often the guard hands back in 10,000 hours, by the true gain."""
    rows = _rows(given.rows)
    by_load: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        if row.differences:
            mean = sum(value for value, *_ in row.differences) / len(row.differences)
            scale = math.sqrt(len(row.differences) / max(len(row.differences) - 1, 1))
            for value, weight, load, _ in row.differences:
                by_load.setdefault(load, []).append(((value - mean) * scale, weight))
    pools = {load: np.array(found) for load, found in by_load.items() if len(found) >= 100}
    random = np.random.default_rng(0)
    lines = []
    for gain, servers in ((0.0, 100), (0.02, 100), (-0.01, 10), (-0.03, 10), (-0.1, 10)):
        away = back = 0
        for _ in range(servers):
            guard = Guard()
            for hour in range(100):
                load = int(random.choice(list(pools)))
                drawn = pools[load][random.integers(len(pools[load]), size=BLOCKS_AN_HOUR)]
                for number, (value, weight) in enumerate(drawn.tolist()):
                    now = 3600.0 * (hour + number / BLOCKS_AN_HOUR)
                    found = Difference("engine", gain + value, weight, load, now)
                    for _, handed_back in guard.add(found):
                        away, back = away + handed_back, back + (not handed_back)
        lines.append([f"{gain:+.0%}", f"{100 * servers:,}", away, back])
    print(markdown(["true gain", "hours", "handed back", "came back"], lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run or print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measured_gain")
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="answer all loads")
    runs.add_argument("--seeds", default="1", help="first and last: 1-28")
    runs.add_argument("--whole", type=int, default=3, help="seeds that have whole runs, too")
    runs.add_argument("--loads", default="", help="parts of names, with commas; default: all")
    runs.add_argument("--share", type=float, default=DENSE)
    runs.add_argument("--ahead", action="store_true", help="asynchronous scheduling")
    runs.add_argument("--out", type=Path, required=True)
    runs.set_defaults(do=run)
    for name, do in (("table", table), ("widths", widths), ("hours", hours)):
        reads = commands.add_parser(
            name, help=(do.__doc__ or "").splitlines()[0].replace("%", "%%")
        )
        reads.add_argument("rows", type=Path, nargs="+")
        reads.set_defaults(do=do)
    commands.add_parser("planted", help="policies that lose").set_defaults(do=planted)
    given = parser.parse_args(arguments)
    given.do(given)


if __name__ == "__main__":
    main()
