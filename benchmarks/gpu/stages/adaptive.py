"""vLLM's adaptive verification beside adaptive-spec and no speculation, where vLLM allows it."""

from __future__ import annotations

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.setups import NONE


def run(bench: Bench) -> None:
    """Measure the three arms at every load; nothing on a CPU, where vLLM does not have it."""
    extent, temperature = bench.extent, bench.extent.temperatures[0]
    arms = ["none", "adaptive", "ours"]
    keys = [
        bench.cell_key("adaptive", name, clients, temperature, repeat)
        for name in arms
        for clients in extent.loads
        for repeat in range(extent.repeats)
    ]
    if not bench.machine.gpu or not bench.missing(keys):
        return
    engine = f"{extent.method}-adaptive"
    bench.use(engine, f"{extent.method}-ours", NONE)
    if not bench.fleet.has(engine):
        return
    for repeat in range(extent.repeats):
        for clients in extent.loads:
            for name in arms if repeat % 2 == 0 else arms[::-1]:
                bench.cell("adaptive", name, bench.load(clients, temperature, repeat), repeat)
