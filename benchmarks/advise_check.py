"""`adaptive-spec advise` against a real vLLM: predicted and measured gains over no speculation.

    python benchmarks/advise_check.py [--trace TRACE] [--results JSON]

The trace was recorded on a real vLLM 0.32 on a CPU of two cores with random K and depth, and the
results were measured for the same traffic in other runs: five kinds of prompt mixed, temperature
0.8, probabilistic drafts, 1 to 16 clients, medians of two to four repeats. Gains are compared, not
tokens per second: the machine's speed drifts from run to run, so each cell is held against no
speculation of its own round. Without resampling: the predictions, not their intervals.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.sim.advice import setups
from adaptive_spec.sim.advice.summary import observe
from adaptive_spec.sim.advice.worlds import World, recorded_world
from adaptive_spec.sim.hardware.from_trace import read_timed_steps

HERE = Path(__file__).resolve().parent
TRACE = HERE / "results" / "vllm_cpu-costs.jsonl.gz"
RESULTS = HERE / "results" / "vllm_cpu-mixed.json"
KMAX = 6


def predicted(world: World, clients: int) -> dict[str, float]:
    """Gain of each arm of the benchmark at a load."""
    none = world.run(setups.no_speculation(), clients).tokens_per_second

    def gain(set_up: setups.SetUp) -> float:
        return world.run(set_up, clients).tokens_per_second / none

    gains = {f"static{k}": gain(setups.static(k)) for k in range(1, KMAX + 1)}
    # A table of one K per load is, at that load, the best fixed K.
    return {**gains, "schedule": max(1.0, *gains.values()), "ours": gain(setups.ours(KMAX))}


def main() -> int:
    """Compare and print."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    observed, steps = observe([given.trace]), read_timed_steps([given.trace])
    measured: dict[int, dict[str, float]] = {}
    for row in json.loads(given.results.read_bytes())["table"]:
        measured.setdefault(row["concurrency"], {})[row["arm"]] = row["over_none"]["middle"]
    loads = sorted(measured)
    world = recorded_world(observed, steps, drafter="draft_model", seed=0, loads=loads)
    found = {clients: predicted(world, clients) for clients in loads}
    print(f"{'arm':10s} predicted measured  error  error at {', '.join(map(str, found))}")
    within = cells = 0
    for arm in found[min(found)]:
        errors = [found[n][arm] / measured[n][arm] - 1.0 for n in found]
        own, real = (mean(side[n][arm] for n in found) for side in (found, measured))
        within, cells = within + sum(abs(each) <= 0.05 for each in errors), cells + len(errors)
        shown = " ".join(f"{each:+.1%}" for each in errors)
        print(f"{arm:10s} {own:9.3f} {real:8.3f} {own / real - 1.0:+6.1%}  {shown}")
    print(f"{within} of {cells} cells within 5 %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
