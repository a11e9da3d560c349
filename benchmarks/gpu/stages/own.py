"""The time of adaptive-spec's own functions per step, with the default policy deciding.

Measured in cells of its own, since timing every call takes time as well.
"""

from __future__ import annotations

from benchmarks.gpu.bench import Bench

SEED = 50
"""The prompts are drawn with it, so that they differ from the sweep's."""


def run(bench: Bench) -> None:
    """Measure at every load, on the engine that the sweep has left."""
    arm = bench.steered_arm
    keys = {clients: f"own/{bench.ours}/{clients}" for clients in bench.extent.loads}
    if not bench.missing(list(keys.values())):
        return
    bench.use_sweep()
    for clients, key in keys.items():
        if bench.missing([key]) and bench.ready(arm) is not None:
            load = bench.load(clients, bench.extent.temperatures[0], SEED)
            print(key, bench.measure(key, bench.ours, "own_time", load=load), flush=True)
