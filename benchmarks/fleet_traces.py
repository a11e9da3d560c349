"""A synthetic fleet's traces: written by the simulator, compacted, and advised on.

    python -m benchmarks.fleet_traces FOLDER [--replicas 64] [--minutes 5] [--distinct 4]

`--distinct` replicas are simulated with `goodput` (EAGLE on an H100, mixed text, 8, 16, 24, ...
requests at a time); the others are copies of their segments under names of their own. Prints the
rate of compaction in one process and its peak memory, the time of `advise` on the compacted fleet,
and its verdict beside that on all rows of a tenth of the replicas.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from adaptive_spec.sim.advice.advice import Predicted, predict
from adaptive_spec.sim.advice.fleet import find_summaries, read_pools
from adaptive_spec.sim.compact import compactions
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate
from adaptive_spec.sim.step_trace import find_trace


def write_fleet(folder: Path, replicas: int, distinct: int, seconds: float) -> None:
    """Write the segments of a fleet, a folder for each replica."""
    for number in range(replicas):
        place = folder / f"pod-{number:03d}"
        if number < distinct:
            scenario = Scenario(
                load=f"closed:{8 * (number + 1)}",
                acceptance=("model:mixed",),
                drafter="eagle",
                hardware="h100-llama-8b",
                seed=number,
                seconds=seconds,
                trace_directory=str(place),
            )
            simulate(scenario, parse_policy("goodput"))
            continue
        place.mkdir(parents=True)
        for file in sorted((folder / f"pod-{number % distinct:03d}").iterdir()):
            shutil.copyfile(file, place / file.name.replace("steps-", f"steps-copy{number}-", 1))


def said(predicted: Predicted) -> str:
    """Return worth, best set-up and the plugin's gain."""
    advice = predicted.conclude()
    ours = next(each for each in advice.predictions if each.name == "goodput")
    return (
        f"worth it: {advice.verdict.worth}; plugin over no speculation {ours.gain - 1.0:+.1%}, "
        f"over {advice.native} "
        + (f"{advice.over_native.value - 1.0:+.1%}" if advice.over_native else "-")
    )


def peak_mb() -> float:
    """Return the most memory that this process has held (MB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, compact and advise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--distinct", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=5.0)
    given = parser.parse_args(arguments)
    source, target = given.folder / "traces", given.folder / "compacted"
    if not source.is_dir():
        write_fleet(source, given.replicas, given.distinct, 60.0 * given.minutes)
    trace = find_trace(source)
    size = sum(segment.size for segment in trace.segments)
    print(f"{len(trace.processes)} replicas, {size / 1e9:.2f} GB", flush=True)
    before, began, steps = 0.0, time.monotonic(), 0
    for number, task in enumerate(compactions(trace, target), start=1):
        done = task.execute()
        if done.error:
            raise SystemExit(f"{done.replica}: {done.error}")
        steps += done.steps
        if number == given.distinct:  # from here on memory ought to stay as it is
            before = peak_mb()
    seconds = time.monotonic() - began
    print(
        f"compacted in {seconds:.0f} s: {size / 1e6 / seconds:.1f} MB/s and {steps / seconds:,.0f} "
        f"steps/s in one process; peak {peak_mb():,.0f} MB, {before:,.0f} MB after the first "
        f"{given.distinct}",
        flush=True,
    )
    began = time.monotonic()
    [pool, *others] = read_pools(find_summaries([target]))
    assert not others, [each.files.name for each in others]
    print(f"compacted fleet, {said(predict(pool.summary))}; {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    tenth = sorted(source.iterdir())[: max(given.replicas // 10, 1)]
    print(f"rows of a tenth, {said(predict(tenth))}; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
