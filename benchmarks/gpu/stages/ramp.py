"""A load that rises from 1 client to the most and falls again: how K follows."""

from __future__ import annotations

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.setups import NONE


def run(bench: Bench) -> None:
    """Run the ramp with adaptive-spec, no speculation and static Kmax."""
    extent = bench.extent
    arms = ("ours", "none", f"static{bench.machine.kmax}")
    keys = [f"ramp/{extent.method}/{name}" for name in arms]
    if not bench.missing(keys):
        return
    bench.use(NONE, f"{extent.method}-vllm", f"{extent.method}-ours")
    peak = max(extent.loads)
    middle = max(1, peak // 4)
    clients = [(each, extent.ramp_seconds) for each in (1, middle, peak, middle, 1)]
    for name, key in zip(arms, keys, strict=True):
        if bench.missing([key]) and (arm := bench.ready(name)) is not None:
            load = bench.load(peak, 0.8, 99)
            bench.measure(key, arm.engine, "ramp", clients, load=load)
            print(key, "done", flush=True)
