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
import json
import sys
import tempfile
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
from adaptive_spec.policies.kernels import select_kernel
from adaptive_spec.sim.acceptance.recorded import read_step_trace
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.from_trace import profile_from_trace
from adaptive_spec.sim.load.step_trace import read_step_trace as read_requests
from benchmarks.vllm_cpu.packing import unpack
from benchmarks.vllm_cpu.simulated import (
    KMAX,
    Rates,
    World,
    long_run,
    rates,
    short_runs,
    warm_runs,
)

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "vllm_cpu-mixed.json"
COSTS = HERE / "results" / "vllm_cpu-costs.jsonl.gz"
ACCEPTANCE = HERE.parent / "sim" / "examples" / "vllm_cpu_mixed.jsonl.gz"

BOUND = 0.10
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
    plain: dict[int, Rates] = {}
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
        if place[1] == "ours":
            short = warm[place[0]]
        else:
            short = short_runs(world, place[1], table, place[0], seconds)
        learns = place[1].startswith("ours")  # and is simulated as it was measured
        sim = rates(short if learns else long_run(world, place[1], table, place[0]))
        if place[0] not in plain:
            plain[place[0]] = rates(long_run(world, "none", None, place[0]))
        sim_none = plain[place[0]]
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
    select_kernel("auto")
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
