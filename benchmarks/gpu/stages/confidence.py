"""Confidence of the drafts: what reading it costs, whether the host waits for it, and its worth."""

from __future__ import annotations

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.shapes import Setting

KINDS = ("quiet", "ours")
"""Engines without and with confidence, else equal."""
ARMS = ("ladder", *KINDS)
CONTEXT, STEPS = 64, 24
PROFILED_BATCH = 16


def run(bench: Bench) -> None:
    """Measure step times with and without confidence, calls of CUDA, and throughput."""
    extent, kmax = bench.extent, bench.machine.kmax
    # Where all drafts are verified, adaptive-spec reads confidence only now and then.
    setting = Setting(k=max(1, kmax - 1), depth=kmax)
    batches = [batch for batch in extent.batches if batch <= bench.machine.max_num_seqs]
    steps = {
        (kind, batch, repeat): f"confidence-steps/{extent.method}-{kind}/{batch}/{repeat}"
        for batch in batches
        for repeat in range(extent.repeats)
        for kind in (KINDS if repeat % 2 == 0 else KINDS[::-1])
    }
    calls = {kind: f"calls/{extent.method}-{kind}" for kind in KINDS}
    cells = [
        bench.cell_key("confidence", name, clients, extent.temperatures[0], repeat)
        for name in ARMS
        for clients in extent.loads
        for repeat in range(extent.repeats)
    ]
    if not bench.missing([*steps.values(), *calls.values(), *cells]):
        return
    bench.use(*(f"{extent.method}-{kind}" for kind in ARMS))
    for (kind, batch, repeat), key in steps.items():
        engine = f"{extent.method}-{kind}"
        bench.measure(
            key,
            engine,
            "settings",
            batch,
            CONTEXT,
            steps=STEPS,
            seed=repeat,
            settings=[setting],
        )
    batch = min(PROFILED_BATCH, bench.machine.max_num_seqs)
    for kind, key in calls.items():
        engine = f"{extent.method}-{kind}"
        bench.measure(
            key, engine, "cuda_calls", batch, CONTEXT, steps=extent.steps, setting=setting
        )
    for repeat in range(extent.repeats):
        for clients in extent.loads:
            load = bench.load(clients, extent.temperatures[0], repeat)
            for name in ARMS if repeat % 2 == 0 else ARMS[::-1]:
                bench.cell("confidence", name, load, repeat)
    engine = f"{extent.method}-ours"
    bench.measure(f"status/{engine}", engine, "control", None)
