"""Confidence of the drafts: what reading it costs, whether the host waits for it, and its worth."""

from __future__ import annotations

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.shapes import Setting

CONTEXT = 64
ENGINES = ("quiet", "ragged")
"""Without and with confidence, else equal."""


def run(bench: Bench) -> None:
    """Measure the stage.

    The steps verify less than was drafted, because where all drafts are verified adaptive-spec
    reads confidence only now and then.
    """
    extent, most = bench.extent, bench.machine.max_num_seqs
    kmax = bench.machine.kmax
    setting = Setting(k=max(1, kmax - 1), depth=kmax)
    batches = [batch for batch in extent.batches if batch <= most]
    rounds = [(batch, repeat) for batch in batches for repeat in range(extent.repeats)]
    steps_key = "confidence-steps/{}/{}/{}".format
    calls_key = "calls/{}".format
    engines = {kind: f"{extent.method}-{kind}" for kind in ENGINES}
    ours = f"{extent.method}-ours"
    temperature = extent.temperatures[0]
    arms = ["ours", "quiet", "ragged"]
    cells = [
        bench.cell_key("confidence", name, clients, temperature, repeat)
        for name in arms
        for clients in extent.loads
        for repeat in range(extent.repeats)
    ]
    keys = [steps_key(engines[kind], *each) for kind in ENGINES for each in rounds]
    if not bench.missing([*keys, *cells, *map(calls_key, engines.values())]):
        return
    bench.use(ours, *engines.values())
    for batch, repeat in rounds:
        for kind in ENGINES if repeat % 2 == 0 else ENGINES[::-1]:
            bench.measure(
                steps_key(engines[kind], batch, repeat),
                engines[kind],
                "settings",
                batch,
                CONTEXT,
                steps=4 * extent.steps,
                seed=repeat,
                settings=[setting],
            )
    for engine in engines.values():
        bench.measure(
            calls_key(engine),
            engine,
            "cuda_calls",
            min(16, most),
            CONTEXT,
            steps=4 * extent.steps,
            setting=setting,
        )
        if bench.fleet.has(engine):
            bench.fleet.forget_switch(engine)
    for repeat in range(extent.repeats):
        for clients in extent.loads:
            for name in arms if repeat % 2 == 0 else arms[::-1]:
                bench.cell("confidence", name, bench.load(clients, temperature, repeat), repeat)
    bench.measure(f"status/{engines['ragged']}", engines["ragged"], "control", None)
