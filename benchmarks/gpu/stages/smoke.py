"""Does everything run at all: libraries, engines, the ladder's graphs, greedy answers."""

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
DRAWN = {"mode": "on", "policy": STEERED, "options": {}}
"""K drawn for each step."""
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
    keys = [f"identity/{method}", *_ladder_keys(bench)]
    if bench.missing(keys):
        # Without graphs there is no price of a ladder, and static K is another engine's as well.
        bench.use(NONE, ours, *([plain] if gpu else []))
        for key in (NONE, ours, plain):
            _keep_capture(bench, key)
        _identity(bench, ours, plain if gpu else None)
        _ladder(bench, ours)


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
    arms = {"none again": NONE, "drawn K": ours}
    if plain is not None:
        arms["static Kmax"] = plain
    found = {}
    for name, engine in arms.items():
        if not bench.fleet.has(engine):
            continue
        if engine == ours:
            bench.fleet.switch(engine, DRAWN)
        given = answers(engine)
        scores = bench.fleet.ask(NONE, "gaps", given, clients)
        found[name] = agreement(wanted, given) | {"largest_gap_nats": round(max(scores), 4)}
    bench.results.add(key, found)
    print(key, found, flush=True)


def _ladder_keys(bench: Bench) -> list[str]:
    batches = [batch for batch in BATCHES if batch <= bench.machine.max_num_seqs]
    return [f"graphs/{bench.extent.method}/{batch}" for batch in batches]


def _ladder(bench: Bench, engine: str) -> None:
    """Count the graphs that decode steps of each rung run in."""
    if not bench.fleet.has(engine):
        return
    rungs = [Setting(k=k) for k in bench.rungs]
    for key in _ladder_keys(bench):
        batch = int(key.rpartition("/")[2])
        rows = bench.measure(
            key, engine, "settings", batch, 64, steps=STEPS, seed=batch, settings=rungs
        )
        print(key, {row["k"]: row["graphs"] for row in rows or ()}, flush=True)
