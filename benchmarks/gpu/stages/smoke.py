"""Does everything run: libraries, engines, greedy answers; and varlen against uniform graphs.

The first stage on a GPU. `ours` has varlen graphs where the attention backend allows them, `ladder`
has uniform graphs for the rungs of a ladder, both on the same model. Seconds and memory of capture,
step times of equal batches and of batches whose K differ, and the graphs that they ran in are kept.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from benchmarks.gpu import libraries
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.greedy import agreement
from benchmarks.gpu.setups import NONE
from benchmarks.gpu.shapes import Setting
from benchmarks.gpu.steered import NAME as STEERED

CAPTURED = re.compile(r"Graph capturing finished in (\d+) secs, took (-?[\d.]+) GiB")
DRAWN = {
    "drawn K": {"mode": "on", "policy": STEERED, "options": {}},
    "drawn K per request": {"mode": "on", "policy": STEERED, "options": {"ragged": True}},
}
"""K drawn for each step, or for each request of it."""
BATCHES = (1, 3, 16, 64, 200)
"""Of the steps whose graphs are counted; several are no multiple of a captured size."""
STEPS = 8


def run(bench: Bench) -> None:
    """Run the stage."""
    method, gpu = bench.extent.method, bench.machine.gpu
    if "libraries" not in bench.results:
        bench.results.add("libraries", libraries.check(gpu=gpu))
        print(bench.results.found["libraries"], flush=True)
    ours, plain = f"{method}-ours", f"{method}-k{bench.machine.kmax}"
    # Without graphs there is nothing to compare, and static K is another engine's as well.
    graphs = {"varlen": ours} | ({"uniform": f"{method}-ladder"} if gpu else {})
    keys = [f"identity/{method}", *(key for kind in graphs for key in _graph_keys(bench, kind))]
    if bench.missing(keys):
        engines = [*graphs.values(), *([plain] if gpu else [])]
        bench.use(NONE, *engines)
        for key in (NONE, *engines):
            _keep_capture(bench, key)
        _identity(bench, ours, plain if gpu else None)
        for kind, engine in graphs.items():
            _time_graphs(bench, kind, engine)


def _keep_capture(bench: Bench, key: str) -> None:
    """Seconds and GiB of graph capture, as vLLM's log tells them."""
    found = CAPTURED.search(bench.fleet.log(key))
    if found is not None:
        seconds, size = int(found[1]), float(found[2])
        bench.results.add(f"capture/{key}", {"seconds": seconds, "gib": size})


def _identity(bench: Bench, ours: str, plain: str | None) -> None:
    """Compare greedy answers with those of no speculation, and have the target score them."""
    key, count = f"identity/{bench.extent.method}", bench.extent.answers
    if key in bench.results or not bench.fleet.has(NONE):
        return
    clients = min(16, count, bench.machine.max_num_seqs)
    load = msgspec.structs.replace(bench.load(clients, 0.0, 0), seed=7)

    def answers(engine: str) -> Any:
        return bench.fleet.ask(engine, "answers", load=load, count=count)

    wanted = answers(NONE)
    arms = {"none again": NONE, **dict.fromkeys(DRAWN, ours)}
    if plain is not None:
        arms["static Kmax"] = plain
    found = {}
    for name, engine in arms.items():
        if not bench.fleet.has(engine):
            continue
        if name in DRAWN:
            bench.fleet.switch(engine, DRAWN[name])
        given = answers(engine)
        scores = bench.fleet.ask(NONE, "gaps", given, clients)
        found[name] = agreement(wanted, given) | {"largest_gap_nats": round(max(scores), 4)}
    bench.results.add(key, found)
    print(key, found, flush=True)


def _graph_keys(bench: Bench, kind: str) -> list[str]:
    batches = [batch for batch in BATCHES if batch <= bench.machine.max_num_seqs]
    return [f"graphs/{bench.extent.method}/{kind}/{batch}" for batch in batches]


def _time_graphs(bench: Bench, kind: str, engine: str) -> None:
    """Time decode steps of each rung, and of K that differ, and count the graphs they run in."""
    if not bench.fleet.has(engine):
        return
    settings = [Setting(k=k) for k in bench.rungs]
    if kind == "varlen":
        kmax = bench.machine.kmax
        # As many drafts, drafted as deep: the difference is that K differ.
        for k in (k for k in bench.rungs if 0 < k < kmax):
            settings += [Setting(k=k, depth=k + 1, ragged=True), Setting(k=k, depth=k + 1)]
    for key in _graph_keys(bench, kind):
        batch = int(key.rpartition("/")[2])
        rows = bench.measure(
            key, engine, "settings", batch, 64, steps=STEPS, seed=batch, settings=settings
        )
        print(key, [(row["k"], row["ragged"], row["graphs"]) for row in rows or ()], flush=True)
