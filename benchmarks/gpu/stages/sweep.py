"""Throughput at every load: no speculation, static K, vLLM's tuned schedule, adaptive-spec.

From the second repeat on the price of the plugin is measured beside them: with the same K as vLLM
(`fixedK` and `staticK`), and switched off (`ours-off` and `none`).
"""

from __future__ import annotations

import random

from benchmarks.gpu.bench import Bench


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
    if bench.over:
        return
    bench.use_sweep()
    for repeat, temperature, clients in cells:
        groups = _groups(bench, repeat)
        random.Random(f"{repeat} {temperature} {clients}").shuffle(groups)
        for group in groups:
            for name in group:
                bench.cell("sweep", name, bench.load(clients, temperature, repeat), repeat)
    if bench.fleet.has(bench.ours) and not bench.over:
        bench.measure(f"status/{extent.method}", bench.ours, "control", None)


def _groups(bench: Bench, repeat: int) -> list[list[str]]:
    """Arms; those of a group run one after the other."""
    steered = [bench.steered_arm]
    if steered == ["ours"]:
        steered = ["ours-cold", "ours"]
    groups = [["none"], *([bench.static_arm(k)] for k in bench.extent.ks), steered]
    if repeat:
        groups += [["schedule"], ["ours-off"]]
        fixed = f"fixed{bench.machine.kmax}"
        groups += [[fixed]] if [fixed] not in groups else []
    return groups
