"""Varlen against uniform graphs: capture, step times of equal and of differing K, throughput.

`ours` has varlen graphs where the attention backend allows them, `ladder` has uniform graphs for
the rungs of a ladder, both on the same model.
"""

from __future__ import annotations

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.shapes import Setting

from .smoke import keep_capture

BATCHES = (1, 3, 16, 64, 120)
"""Graphs are counted at these; several are no multiple of a captured size."""
STEPS = 8


def run(bench: Bench) -> None:
    """Run the stage."""
    method = bench.extent.method
    # Without graphs there is nothing to compare.
    engines = {"varlen": f"{method}-ours"}
    if bench.machine.gpu:
        engines["uniform"] = f"{method}-ladder"
    batches = [batch for batch in BATCHES if batch <= bench.machine.max_num_seqs]
    keys = {kind: [f"graphs/{method}/{kind}/{batch}" for batch in batches] for kind in engines}
    if bench.over:
        return
    bench.use(*engines.values())
    for kind, engine in engines.items():
        keep_capture(bench, engine)
        for batch, key in zip(batches, keys[kind], strict=True):
            rows = bench.measure(
                key, engine, "settings", batch, 64,
                steps=STEPS, seed=batch, settings=_settings(bench, kind),
            )  # fmt: skip
            print(key, [(row["k"], row["ragged"], row["graphs"]) for row in rows or ()], flush=True)
    arms = [
        *(f"fixed{k}" for k in bench.extent.ks),
        *(["ladder"] if bench.machine.gpu else []),
        "ours",
    ]
    for clients in bench.extent.loads:
        load = bench.load(clients, bench.extent.temperatures[0], 0)
        for name in arms:
            bench.cell("graphs", name, load, 0)


def _settings(bench: Bench, kind: str) -> list[Setting]:
    """Each rung, and beside it K that differ: as many drafts, drafted as deep."""
    settings = [Setting(k=k) for k in bench.rungs]
    if kind == "varlen":
        for k in (k for k in bench.rungs if 0 < k < bench.machine.kmax):
            settings += [Setting(k=k, depth=k + 1, ragged=True), Setting(k=k, depth=k + 1)]
    return settings
