"""How fast the simulator is: an hour of real arrivals, in slices, on one core.

    python benchmarks/simulator_speed.py [--json FILE]

Replays the first 1/16, 1/4 and all of the Azure conversation hour (19,366 requests, 4.1 M output
tokens) on an H100 profile, with `static` and `goodput`, the planner compiled and plain. Every run
is a process of its own, so that its peak memory is its own. Prints microseconds per step, which
must not grow with the slice, and where the time of one run went.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import platform
import pstats
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal, TypeAlias

DATA = Path(os.environ.get("ADAPTIVE_SPEC_DATA", "../shared/data"))
HOUR = DATA / "load" / "azure_llm_2023_conv.csv.gz"
ACCEPTANCE = DATA / "unlicensed" / "acceptance_specdecodebench_llama31_8b_gsm8k.jsonl.gz"
HOUR_SECONDS = 3501.0
SLICES = {"1/16": HOUR_SECONDS / 16, "1/4": HOUR_SECONDS / 4, "whole": None}
Kernel: TypeAlias = Literal["numba", "numpy"]
RUNS: tuple[tuple[str, Kernel], ...] = (
    ("static:k=3", "numba"),
    ("goodput", "numba"),
    ("goodput", "numpy"),
)
PROFILED_FUNCTIONS = 12


def run(policy: str, kernel: Kernel, seconds: float | None, *, profile: bool = False) -> dict:
    """One replay in this process."""
    from adaptive_spec.policies.kernels import select_kernel
    from adaptive_spec.sim.policy_choice import parse_policy
    from adaptive_spec.sim.scenario import Scenario, simulate

    select_kernel(kernel)
    scenario = Scenario(
        load=str(HOUR) if seconds is None else f"{HOUR}@first={seconds}",
        acceptance=(str(ACCEPTANCE),),
        drafter="eagle",
        hardware="h100-llama-8b",
    )
    profiler = cProfile.Profile() if profile else None
    if profiler:
        profiler.enable()
    began = time.perf_counter()
    result = simulate(scenario, parse_policy(policy))
    wall = time.perf_counter() - began
    if profiler:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(PROFILED_FUNCTIONS)
    return {
        "steps": result.steps,
        "requests": result.requests,
        "tokens": result.tokens,
        "seconds": round(wall, 2),
        "us_per_step": round(1e6 * wall / result.steps, 1),
        "decision_us_p50": round(result.decision_us.p50 or 0.0, 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")


def in_own_process(policy: str, kernel: Kernel, seconds: float | None) -> dict:
    command = [sys.executable, __file__, "--one", json.dumps([policy, kernel, seconds])]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(found.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--profile", action="store_true", help="only show where the time goes")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not HOUR.is_file():
        sys.exit(f"no {HOUR}: set ADAPTIVE_SPEC_DATA to the folder with the public traces")
    if arguments.one:
        print(json.dumps(run(*json.loads(arguments.one))))
        return
    if arguments.profile:
        for policy, kernel in RUNS:
            print(f"{policy}, {kernel}, first 1/16 of the hour")
            run(policy, kernel, SLICES["1/16"], profile=True)
        return
    rows = []
    print(f"{'policy':<12}{'kernel':<8}{'slice':<8}{'steps':>9}{'s':>8}{'us/step':>9}{'MB':>6}")
    for policy, kernel in RUNS:
        for name, seconds in SLICES.items():
            row = {"policy": policy, "kernel": kernel, "slice": name}
            row |= in_own_process(policy, kernel, seconds)
            rows.append(row)
            print(
                f"{policy:<12}{kernel:<8}{name:<8}{row['steps']:>9,}{row['seconds']:>8}"
                f"{row['us_per_step']:>9}{row['peak_memory_mb']:>6}",
                flush=True,
            )
    if arguments.json:
        machine = {"cpu": _cpu(), "python": platform.python_version()}
        text = json.dumps({"machine": machine, "load": HOUR.name, "runs": rows}, indent=1)
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
