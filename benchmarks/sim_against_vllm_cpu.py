"""The simulator against a real vLLM: replay the cells of `vllm_cpu.py` and compare throughput.

    python benchmarks/sim_against_vllm_cpu.py [--results JSON] [--costs TRACE] [--acceptance TRACE]
        [--output FILE]

Without options the script takes the files of this repository. The JSON holds the cells that
`vllm_cpu.py` measured. The traces are those that `vllm_cpu.py --record` packed for the same
condition: `costs.jsonl.gz` gives the hardware profile, `acceptance.jsonl.gz`, recorded with
K = Kmax, gives the acceptance. Neither is one of the measured runs. Each arm at each concurrency
is simulated as a closed loop of the same requests, and the script compares ratios of throughput to
no speculation.

Nothing is fitted to the measured throughputs. Known differences: the simulator draws the kinds of
prompt at random where the benchmark takes them in turn, and never drafts beyond a request's end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import msgspec

if not __package__:  # run as a file
    # In place of this folder, where `vllm_cpu` would be found under a second name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.policy import Policy, build_policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.recorded import read_step_trace
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.from_trace import profile_from_trace
from adaptive_spec.sim.load.base import ClosedLoad, Load
from adaptive_spec.sim.load.concurrency import VaryingClosedLoad
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.load.shapes import Piece
from adaptive_spec.sim.load.step_trace import read_step_trace as read_requests
from adaptive_spec.sim.results.result import Result
from benchmarks.vllm_cpu.packing import unpack

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "vllm_cpu-mixed.json"
COSTS = HERE / "results" / "vllm_cpu-costs.jsonl.gz"
ACCEPTANCE = HERE.parent / "sim" / "examples" / "vllm_cpu_mixed.jsonl.gz"

KMAX = 6
MAX_RUNNING = 16
BOUND = 0.10
TOKENS = 100_000
WARM_UP_STEPS = 100
SEEDS = 30
"""Runs as short as the measured cells, for what is simulated as it was measured."""
PAUSE_SECONDS = 30.0
"""Long enough for the requests of a load to end before the next load begins."""
NORMAL_OVER_MEDIAN = 1.4826
"""Standard deviation of a normal law over its median absolute deviation."""


@dataclass(frozen=True)
class Comparison:
    """One arm at one concurrency.

    Attributes:
        measured: throughput over that of no speculation, mean of the repeats.
        low, high: of the repeats.
        simulated: the same ratio.
        error: simulated over measured, minus 1.
        luck: standard deviation, relative, of simulated runs as short as the measured ones: how
            much chance there is in which texts and drafts a cell happens to meet.
        tokens_error: the same of the tokens emitted per request and decoding step.
        step_error: the same of the duration of a step.
    """

    arm: str
    concurrency: int
    measured: float
    low: float
    high: float
    simulated: float
    error: float
    luck: float
    tokens_error: float
    step_error: float


@dataclass(frozen=True)
class Rates:
    """What a run comes to, measured or simulated."""

    tokens_per_second: float
    tokens_per_step: float
    step_seconds: float


@dataclass(frozen=True)
class World:
    """What all simulated runs share."""

    hardware: Hardware
    acceptance: AcceptanceData
    prompt_tokens: tuple[int, ...]
    output_tokens: int
    temperature: float
    timing_noise: float

    def requests(self) -> Iterator[Request]:
        """Endless; lengths as recorded."""
        for number, prompt in enumerate(itertools.cycle(self.prompt_tokens)):
            yield Request(
                id=f"request-{number}",
                arrival=0.0,
                prompt_tokens=prompt,
                output_tokens=self.output_tokens,
                temperature=self.temperature,
            )

    def engine(self, arm: str, policy: Policy, load: Load, seed: int) -> Engine:
        """A simulated server for an arm."""
        return Engine(
            load,
            self.acceptance,
            drafter("none" if arm == "none" else "draft_model"),
            self.hardware,
            policy,
            EngineOptions(
                max_draft_tokens=KMAX, max_running=MAX_RUNNING, timing_noise=self.timing_noise
            ),
            seed=seed,
        )

    def closed(self, arm: str, table: Any, concurrency: int, seed: int) -> Engine:
        """The same in a closed loop, with a fresh policy."""
        load = ClosedLoad(self.requests(), concurrency)
        return self.engine(arm, policy_for(arm, table), load, seed)


def policy_for(arm: str, table: list[list[int]] | None) -> Policy:
    """The policy that an arm of the benchmark is in the simulator."""
    if arm == "none":
        return build_policy("off")
    if arm == "schedule":
        return build_policy("batch_table", {"table": table})
    if arm.startswith("ours"):
        return build_policy("goodput")
    return build_policy("static", {"k": int(arm[-1])})


def rates(runs: list[Result]) -> Rates:
    """Some runs together."""
    return Rates(
        tokens_per_second=sum(run.tokens for run in runs) / sum(run.seconds for run in runs),
        tokens_per_step=mean(1.0 + run.accepted_per_step for run in runs),
        step_seconds=sum(run.seconds for run in runs) / sum(run.steps for run in runs),
    )


def warm_runs(world: World, results: dict[str, Any]) -> dict[int, list[Result]]:
    """What ours, warm, does at each load, with the history that it had when it was measured.

    It learns at each load in turn, then serves the repeats, load by load.
    """
    loads = sorted({cell["concurrency"] for cell in results["cells"]})
    repeats = 1 + max(cell["repeat"] for cell in results["cells"])
    learning = [(load, results["learn_seconds"], False) for load in loads]
    cells = [(load, results["seconds_per_cell"], True) for load in loads]
    history = learning + cells * repeats
    pieces = [
        piece
        for load, seconds, _ in history
        for piece in (Piece(seconds, load, load), Piece(PAUSE_SECONDS, 0, 0))
    ]
    found: dict[int, list[Result]] = {load: [] for load in loads}
    for seed in range(SEEDS):
        load = VaryingClosedLoad(world.requests(), pieces)
        engine = world.engine("ours", build_policy("goodput"), load, seed)
        end = 0.0
        for concurrency, seconds, kept in history:
            result = engine.run(max_seconds=end + seconds)
            end += seconds + PAUSE_SECONDS
            engine.run(max_seconds=end)
            if kept:
                found[concurrency].append(result)
    return found


def short_runs(
    world: World, arm: str, table: Any, concurrency: int, seconds: float
) -> list[Result]:
    """Runs as long as what was measured, of a policy that has learned nothing."""
    return [
        world.closed(arm, table, concurrency, seed).run(max_seconds=seconds)
        for seed in range(SEEDS)
    ]


def long_run(world: World, arm: str, table: Any, concurrency: int) -> list[Result]:
    """One run in which chance counts little."""
    engine = world.closed(arm, table, concurrency, 0)
    return [engine.run(max_tokens=TOKENS, warmup_steps=WARM_UP_STEPS)]


def measured(cells: list[dict[str, Any]]) -> Rates:
    """All repeats of an arm at a concurrency together."""
    seconds = sum(cell["seconds"] for cell in cells)
    request_steps = sum(cell["request_steps"] for cell in cells)
    return Rates(
        tokens_per_second=sum(cell["tokens"] for cell in cells) / seconds,
        tokens_per_step=1.0 + sum(cell["accepted"] for cell in cells) / request_steps,
        step_seconds=seconds / sum(cell["steps"] for cell in cells),
    )


def compare(results: dict[str, Any], world: World) -> list[Comparison]:
    """Every arm and concurrency that was measured."""
    found = []
    warm = warm_runs(world, results)
    by_place: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for cell in results["cells"]:
        by_place.setdefault((cell["concurrency"], cell["arm"]), []).append(cell)
    for row in results["table"]:
        place = (row["concurrency"], row["arm"])
        left_out = set(row["rejected_repeats"])
        kept = [cell for cell in by_place[place] if cell["repeat"] not in left_out]
        if place[1] == "none" or not kept:
            continue
        none = {cell["repeat"]: cell for cell in by_place[place[0], "none"]}
        real = measured(kept)
        table, seconds = kept[-1]["table"], mean(cell["seconds"] for cell in kept)
        short = short_runs(world, place[1], table, place[0], seconds)
        runs = long_run(world, place[1], table, place[0])
        if place[1] == "ours":
            runs = short = warm[place[0]]
        elif place[1] == "ours-cold":
            runs = short
        sim = rates(runs)
        sim_none = rates(long_run(world, "none", None, place[0]))
        spread = [run.tokens / run.seconds for run in short]
        # Paired: the machine's speed drifts between rounds.
        ratio = mean(
            measured([cell]).tokens_per_second / measured([none[cell["repeat"]]]).tokens_per_second
            for cell in kept
        )
        predicted = sim.tokens_per_second / sim_none.tokens_per_second
        found.append(
            Comparison(
                arm=place[1],
                concurrency=place[0],
                measured=ratio,
                low=row["over_none"]["low"],
                high=row["over_none"]["high"],
                simulated=predicted,
                error=predicted / ratio - 1.0,
                luck=stdev(spread) / mean(spread) / sqrt(len(kept)),
                tokens_error=sim.tokens_per_step / real.tokens_per_step - 1.0,
                step_error=sim.step_seconds / real.step_seconds - 1.0,
            )
        )
    return found


def text(found: list[Comparison]) -> str:
    """A table, and how far off it is."""
    lines = [
        "load  arm        measured (min-max)    simulated  error    luck  of it: tokens/step, step",
        *(
            f"{row.concurrency:4d}  {row.arm:9s}  {row.measured:5.3f} "
            f"({row.low:5.3f}-{row.high:5.3f})  {row.simulated:9.3f}  {row.error:+6.1%}  "
            f"{row.luck:5.1%}  {row.tokens_error:+6.1%} {row.step_error:+6.1%}"
            for row in found
        ),
    ]
    return "\n".join([*lines, "", *(f"{key}: {value}" for key, value in summary(found).items())])


def summary(found: list[Comparison]) -> dict[str, Any]:
    """Errors over all cells."""
    errors = [abs(row.error) for row in found]
    worst = max(found, key=lambda row: abs(row.error))
    return {
        "cells": len(found),
        f"within {BOUND:.0%}": sum(error <= BOUND for error in errors),
        "within twice the luck": sum(abs(row.error) <= 2.0 * row.luck for row in found),
        "mean absolute error": f"{mean(errors):.1%}",
        "largest error": f"{worst.error:+.1%} ({worst.arm} at {worst.concurrency})",
    }


def main() -> int:
    """Read, simulate, print."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON of vllm_cpu.py")
    parser.add_argument("--costs", type=Path, default=COSTS, help="packed trace, random K and D")
    parser.add_argument(
        "--acceptance", type=Path, default=ACCEPTANCE, help="packed trace, K = Kmax"
    )
    parser.add_argument("--output", type=Path, help="JSON file to write")
    given = parser.parse_args()
    try:
        results = json.loads(given.results.read_bytes())
        with tempfile.TemporaryDirectory() as folder:
            unpack(given.costs, Path(folder, "costs"))
            unpack(given.acceptance, Path(folder, "acceptance"))
            found, about = replayed(results, Path(folder))
    except (OSError, ValueError, AdaptiveSpecError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(text(found))
    if given.output is not None:
        kept = about | {"summary": summary(found), "cells": [asdict(row) for row in found]}
        given.output.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0 if all(abs(row.error) <= BOUND for row in found) else 1


def replayed(results: dict[str, Any], traces: Path) -> tuple[list[Comparison], dict[str, Any]]:
    """All comparisons, and what they rest on."""
    profile, fit = profile_from_trace([traces / "costs"], name="vllm-cpu", drafter="draft_model")
    acceptance = read_step_trace(traces / "acceptance", depth=KMAX)
    lengths = tuple(request.prompt_tokens for request in read_requests(traces / "acceptance"))
    world = World(
        hardware=Hardware(profile),
        acceptance=acceptance,
        prompt_tokens=lengths,
        output_tokens=results["output_tokens_of_a_request"],
        temperature=results["condition"]["temperature"],
        timing_noise=NORMAL_OVER_MEDIAN * fit.median_error,
    )
    about = {
        "condition": results["condition"],
        "measured": {key: results[key] for key in ("date", "environment", "command")},
        "profile": msgspec.to_builtins(profile),
        "fit": msgspec.to_builtins(fit),
        "acceptance": acceptance.source,
        "acceptance_records": acceptance.records,
    }
    return compare(results, world), about


if __name__ == "__main__":
    sys.exit(main())
