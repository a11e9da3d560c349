"""About seventy cells that a change of `goodput` must not lose, and the comparison of two runs.

    python benchmarks/house_cells.py run --output before.json        # some minutes on one core
    python benchmarks/house_cells.py compare before.json after.json  # exit status 1: lost something

The cells stand in `house_cells.yaml`; `house_worlds.yaml` defines their names. A score is
throughput in closed loops and 1 / mean TPOT where requests arrive by themselves.
Each cell is a mean over its seeds of the score over that of the run before, minus 1, in per cent.
Allowed: the mean of each group within .3 of the run before, and no cell more than .5 below it.

Small things decide some cells by more than that: `run --policy-seed 1000` is the same policy with
another seed of its exploration, and comparing it shows by how much.

One fixed K is run on the first seed of each cell besides. Where its score differs between two runs,
the simulator has changed, and nothing can be said of the policy.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import msgspec

from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.results.result import Result
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.sim.sweep.cells import Cell, Files, plan_cells
from adaptive_spec.sim.sweep.config import Group, SweepConfig, load_sweep_config

HERE = Path(__file__).resolve().parent
CELLS = HERE / "house_cells.yaml"
WORLDS = HERE / "house_worlds.yaml"
HARDWARE, ENGINE = "profiles/h100-llama-8b.json", "default"
FIXED = "static:k=2"
GROUP_BOUND, CELL_BOUND = 0.3, 0.5


class Run(msgspec.Struct, frozen=True):
    """Scores of one policy: by group, cell and seed; and of a fixed K, by cell."""

    policy: str
    scores: dict[str, dict[str, list[float]]]
    fixed: dict[str, float]


def cells_of(rows: list[list[str]], seeds: int) -> list[list[Cell]]:
    """The cells that these rows name, each with all its seeds."""
    found = []
    for acceptance, load, hardware, engine in (
        (*row, *(HARDWARE, ENGINE)[len(row) - 2 :]) for row in rows
    ):
        group = Group(
            acceptance=(acceptance,),
            loads=(load,),
            hardware=(hardware,),
            engine_variants=(engine,),
        )
        config = msgspec.structs.replace(_worlds(), groups={"": group}, seeds=seeds)
        cells = list(plan_cells(config, Files(HERE)))
        if len(cells) != seeds:
            raise SystemExit(f"{CELLS.name}: {len(cells)} runs of {[acceptance, load, hardware]}")
        found.append(cells)
    return found


def score(scenario: Scenario, result: Result) -> float:
    """Throughput, or 1 / mean TPOT [1 / ms] where requests arrive by themselves."""
    if scenario.closed:
        return result.throughput_tok_s
    tpot = result.tpot_ms.mean
    if tpot is None:
        raise SystemExit("a run in which no request has ended has no score")
    return 1.0 / tpot


def later(scenario: Scenario, steps: int) -> Scenario:
    """The same with results that reach the policy so many steps later."""
    engine = scenario.engine
    late = msgspec.structs.replace(engine, delay=min(engine.delay + steps, 2))
    return msgspec.structs.replace(scenario, engine=late)


def run(policy: str, seeds: int, policy_seed: int, delay: int) -> Run:
    """All cells with this policy."""
    choice = parse_policy(policy)
    scores: dict[str, dict[str, list[float]]] = {}
    fixed: dict[str, float] = {}
    for group, rows in msgspec.yaml.decode(CELLS.read_bytes()).items():
        began = time.perf_counter()
        for cells in cells_of(rows, seeds):
            scenario, name = cells[0].scenario, cells[0].name
            text = " / ".join((name.acceptance, name.hardware, name.engine, name.load))
            result = scenario.run(parse_policy(FIXED).build(0), FIXED)
            fixed[text] = score(scenario, result)
            for cell in cells:
                chosen = choice.build(cell.scenario.seed + policy_seed)
                result = later(cell.scenario, delay).run(chosen, choice.text)
                if result.fail_opens:
                    raise SystemExit(f"{text}: {result.fail_opens} fail-opens")
                found = score(cell.scenario, result)
                scores.setdefault(group, {}).setdefault(text, []).append(found)
        print(f"{group}: {len(rows)} cells, {time.perf_counter() - began:.0f} s", flush=True)
    return Run(policy, scores, fixed)


def compare(before: Run, after: Run) -> bool:
    """Print the change by group and the cells that changed most; True if nothing is lost."""
    for cell in before.fixed.keys() & after.fixed.keys():
        if before.fixed[cell] != after.fixed[cell]:
            raise SystemExit(f"{cell}: the simulator has changed, {FIXED} scores otherwise")
    lost: list[str] = []
    changes: dict[str, list[float]] = defaultdict(list)
    print(f"{'group':26}{'mean':>8}{'lowest':>8}{'highest':>9}")
    for group, cells in before.scores.items():
        missing = cells.keys() - after.scores.get(group, {}).keys()
        if missing:
            raise SystemExit(f"the second run lacks {group}: {min(missing)}")
        for cell, old in cells.items():
            new = after.scores[group][cell]
            each = [100.0 * (b / a - 1.0) for a, b in zip(old, new, strict=True)]
            changes[group].append(mean(each))
            if mean(each) < -CELL_BOUND:
                spread = stdev(each) if len(each) > 1 else 0.0
                lost.append(f"{mean(each):+.2f} (spread {spread:.2f}): {group}: {cell}")
        found = changes[group]
        print(f"{group:26}{mean(found):+8.2f}{min(found):+8.2f}{max(found):+9.2f}")
        if abs(mean(found)) > GROUP_BOUND:
            lost.append(f"{mean(found):+.2f}: mean of {group}")
    every = [change for found in changes.values() for change in found]
    print(f"{'all':26}{mean(every):+8.2f}{min(every):+8.2f}{max(every):+9.2f}")
    print("\n".join(["", "beyond the bounds:", *lost] if lost else ["", "within the bounds"]))
    # A group that has gained is told, and is no loss.
    return not any(line.startswith("-") for line in lost)


@cache
def _worlds() -> SweepConfig:
    return load_sweep_config(WORLDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run every cell")
    running.add_argument("--output", type=Path, required=True)
    running.add_argument("--policy", default="goodput", help="NAME or NAME:key=value,...")
    running.add_argument("--seeds", type=int, default=3)
    running.add_argument("--policy-seed", type=int, default=0, help="added to the policy's own")
    running.add_argument("--delay", type=int, default=0, help="steps that results come later")
    comparing = commands.add_parser("compare", help="hold one run against another")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        before, after = (
            msgspec.json.decode(file.read_bytes(), type=Run)
            for file in (arguments.before, arguments.after)
        )
        return 0 if compare(before, after) else 1
    found = run(arguments.policy, arguments.seeds, arguments.policy_seed, arguments.delay)
    arguments.output.write_bytes(msgspec.json.encode(found) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
