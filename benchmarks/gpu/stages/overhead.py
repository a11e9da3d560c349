"""The price of adaptive-spec itself: step times with and without it, and its own time per step.

Pairs that run the same K: `fixedK` and `staticK`; `ours-off`, `static0` and `none`. Own time is
measured in cells of its own, since timing every call takes time as well.
"""

from __future__ import annotations

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.setups import NONE
from benchmarks.gpu.shapes import Setting

SYNC = "-sync"
SEED = 50
"""Of the first repeat: other prompts than the sweep's."""
PROFILED_BATCH, CONTEXT = 16, 64


def run(bench: Bench) -> None:
    """Measure with asynchronous scheduling, then with synchronous scheduling."""
    kmax = bench.machine.kmax
    pair = [f"static{kmax}", f"fixed{kmax}"]
    _measure(bench, "", [*pair, "static0", "ours-off", "none"], [NONE])
    if bench.machine.gpu:  # on a CPU vLLM schedules synchronously: those were it
        _measure(bench, SYNC, [name + SYNC for name in pair], [])


def _measure(bench: Bench, sync: str, arms: list[str], others: list[str]) -> None:
    extent, temperature = bench.extent, bench.extent.temperatures[0]
    ours, theirs = f"{extent.method}-ours{sync}", f"{extent.method}-vllm{sync}"
    own = {clients: f"own/{ours}/{clients}" for clients in extent.loads}
    calls = {theirs: f"calls/{theirs}", ours: f"calls/{ours}"}
    cells = [
        bench.cell_key("overhead", name, clients, temperature, repeat)
        for name in arms
        for clients in extent.loads
        for repeat in range(extent.repeats)
    ]
    if not bench.missing([*cells, *own.values(), *calls.values()]):
        return
    bench.use(theirs, ours, *others)
    for repeat in range(extent.repeats):
        for clients in extent.loads:
            load = bench.load(clients, temperature, SEED + repeat)
            for name in arms if repeat % 2 == 0 else arms[::-1]:
                bench.cell("overhead", name, load, repeat)
    for clients, key in own.items():
        if bench.missing([key]) and bench.ready(f"ours{sync}") is not None:
            load = bench.load(clients, temperature, SEED)
            print(key, bench.measure(key, ours, "own_time", load=load), flush=True)
    for engine, key in calls.items():
        if bench.missing([key]):
            bench.ready(f"static{bench.machine.kmax}{sync}")
            setting = Setting(k=bench.machine.kmax) if engine == ours else None
            batch = min(PROFILED_BATCH, bench.machine.max_num_seqs)
            bench.measure(
                key, engine, "cuda_calls", batch, CONTEXT, steps=extent.steps, setting=setting
            )
