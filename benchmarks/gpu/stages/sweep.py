"""Throughput at every load: no speculation, static K, vLLM's tuned schedule, adaptive-spec."""

from __future__ import annotations

import random

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.setups import NONE


def run(bench: Bench) -> None:
    """Measure every arm at every load, in an order drawn anew for each load.

    `ours` follows `ours-cold` at once: the same policy, which has then seen this load. The schedule
    is tuned from the static K of the first repeat, so it runs in the others.
    """
    extent = bench.extent
    cells = [
        (repeat, temperature, clients)
        for repeat in range(extent.repeats)
        for temperature in extent.temperatures
        for clients in extent.loads
    ]
    keys = [
        bench.cell_key("sweep", name, clients, temperature, repeat)
        for repeat, temperature, clients in cells
        for group in _groups(bench, repeat)
        for name in group
    ]
    if not bench.missing(keys):
        return
    bench.use(NONE, f"{extent.method}-vllm", f"{extent.method}-ours")
    for repeat, temperature, clients in cells:
        groups = _groups(bench, repeat)
        random.Random(f"{repeat} {temperature} {clients}").shuffle(groups)
        for group in groups:
            for name in group:
                bench.cell("sweep", name, bench.load(clients, temperature, repeat), repeat)
    engine = f"{extent.method}-ours"
    if bench.fleet.has(engine) and not bench.over:
        bench.measure(f"status/{extent.method}", engine, "control", None)


def _groups(bench: Bench, repeat: int) -> list[list[str]]:
    """Arms; those of a group run one after the other."""
    groups = [["none"], *([f"static{k}"] for k in bench.extent.ks), ["ours-cold", "ours"]]
    return [*groups, ["schedule"]] if repeat else groups
