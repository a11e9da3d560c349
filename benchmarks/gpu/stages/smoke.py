"""Does everything run: libraries, engines, greedy answers.

The engines are those of the sweep, which follows: no speculation, vLLM with its table of K, and
adaptive-spec. Seconds and memory of graph capture are kept.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from benchmarks.gpu import libraries
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.greedy import agreement
from benchmarks.gpu.setups import NONE
from benchmarks.gpu.steered import NAME as STEERED

CAPTURED = re.compile(r"Graph capturing finished in (\d+) secs, took (-?[\d.]+) GiB")
DRAWN = {
    "drawn K": {"mode": "on", "policy": STEERED, "options": {}},
    "drawn K per request": {"mode": "on", "policy": STEERED, "options": {"ragged": True}},
}
"""K drawn for each step, or for each request of it."""


def run(bench: Bench) -> None:
    """Run the stage."""
    if "libraries" not in bench.results:
        bench.results.add("libraries", libraries.check(gpu=bench.machine.gpu))
        print(bench.results.found["libraries"], flush=True)
    key = f"identity/{bench.extent.method}"
    if not bench.missing([key]):
        return
    bench.use_sweep()
    if bench.fleet.has(NONE):
        found = _identity(bench)
        bench.results.add(key, found)
        print(key, found, flush=True)


def keep_capture(bench: Bench, key: str) -> None:
    """Keep the seconds and GiB of graph capture that an engine's log tells."""
    found = CAPTURED.search(bench.fleet.log(key))
    if found is not None:
        seconds, size = int(found[1]), float(found[2])
        bench.results.add(f"capture/{key}", {"seconds": seconds, "gib": size})


def _identity(bench: Bench) -> dict[str, Any]:
    """Compare greedy answers with those of no speculation, and have the target score them."""
    count, ours = bench.extent.answers, bench.ours
    clients = min(16, count, bench.machine.max_num_seqs)
    load = msgspec.structs.replace(bench.load(clients, 0.0, 0), seed=7)

    def answers(engine: str) -> Any:
        return bench.fleet.ask(engine, "answers", load=load, count=count)

    wanted, found = answers(NONE), {}
    static = bench.static_arm(bench.machine.kmax)
    for name in ("none again", static, *DRAWN):
        if name in DRAWN:
            if not bench.fleet.has(ours):
                continue
            bench.fleet.switch(ours, DRAWN[name])
            given = answers(ours)
        elif name == static:
            arm = bench.ready(static)
            if arm is None:
                continue
            given = answers(arm.engine)
        else:
            given = answers(NONE)
        scores = bench.fleet.ask(NONE, "gaps", given, clients)
        found[name] = agreement(wanted, given) | {"largest_gap_nats": round(max(scores), 4)}
    return found
