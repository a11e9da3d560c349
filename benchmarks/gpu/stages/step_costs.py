"""Durations of decode steps by batch, K, depth and context, and a hardware profile of them.

The engines are those of the sweep; adaptive-spec's records step traces. The profile for the
simulator is fitted to the steps whose K were equal; what a batch of mixed K costs on top is the
ragged penalty. A last load at K = Kmax records what is accepted at every position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.setups import NONE
from benchmarks.gpu.shapes import Setting
from benchmarks.gpu.steered import NAME as STEERED

KV_BYTES_PER_TOKEN = 2 * 33 * 8 * 128 * 2
"""Of an 8B target with one layer of drafter: keys and values, layers, heads, dimensions, bf16."""
FILLED = 0.85
"""Of the KV cache: beyond it requests would be preempted."""
PROMPT_REPEATS = 5
ACCEPTANCE_CLIENTS = 16
LEAST_ACCEPTANCE_SECONDS = 3.0


def run(bench: Bench) -> None:
    """Measure the stage."""
    extent = bench.extent
    engine = bench.ours
    settings = settings_for(bench.rungs, bench.machine.kmax)
    places = [
        (batch, context)
        for context in extent.contexts
        for batch in extent.batches
        if batch <= bench.machine.max_num_seqs
        and _fits(bench, batch, context + _growth(bench, settings))
    ]
    keys = [f"steps/{engine}/{batch}/{context}" for batch, context in places]
    keys += [f"steps/{NONE}/{batch}/{context}" for batch, context in places]
    keys += [f"prompts/{NONE}/{tokens}" for tokens in extent.prompts]
    accepted = [f"acceptance/{engine}/t{each:g}" for each in extent.temperatures]
    if not bench.missing([*keys, *accepted]):
        return
    bench.use_sweep()
    for batch, context in places:
        for name, some in ((NONE, []), (engine, settings)):
            key = f"steps/{name}/{batch}/{context}"
            bench.measure(
                key, name, "settings", batch, context, steps=extent.steps, seed=batch, settings=some
            )
            print(key, _shown(bench.results.found.get(key)), flush=True)
    for tokens in extent.prompts:
        key = f"prompts/{NONE}/{tokens}"
        print(key, bench.measure(key, NONE, "prompts", tokens, PROMPT_REPEATS), flush=True)
    rows = [row for key in keys[: len(places)] for row in bench.results.found.get(key) or ()]
    if (penalty := ragged_penalty(rows)) is not None:
        bench.results.add("ragged_penalty", penalty)
    always = {"mode": "on", "policy": STEERED, "options": {"k": bench.machine.kmax}}
    for key, temperature in zip(accepted, extent.temperatures, strict=True):
        if bench.missing([key]) and bench.fleet.has(engine):
            bench.fleet.switch(engine, always)
            seconds = max(LEAST_ACCEPTANCE_SECONDS, 2.0 * extent.cell_seconds)
            clients = min(ACCEPTANCE_CLIENTS, bench.machine.max_num_seqs)
            load = msgspec.structs.replace(
                bench.load(clients, temperature, 80), seconds=seconds, output_tokens=96
            )
            print(key, bench.measure(key, engine, "serve", load=load), flush=True)


def settings_for(rungs: tuple[int, ...], kmax: int) -> list[Setting]:
    """Every rung uniform and ragged, and fewer verified than drafted, so that costs part."""
    uniform = [Setting(k=k) for k in rungs]
    ragged = [Setting(k=k, depth=min(k + 1, kmax), ragged=True) for k in rungs if 0 < k < kmax]
    # The uniform step that a ragged one is compared with drafts as deep.
    as_deep = [Setting(k=each.k, depth=each.depth) for each in ragged]
    return [*uniform, *ragged, *as_deep, Setting(k=0, depth=kmax)]


def ragged_penalty(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Extra time of a decode step whose K differ, relative to one of equal K; None if unknown.

    Steps of the same batch, context, depth and drafts in all are compared; the median of them.
    """
    uniform = {_place(row): row["ms"] for row in rows if not row["ragged"]}
    ratios = [
        row["ms"] / uniform[_place(row)]
        for row in rows
        if row["ragged"] and row["batch"] > 1 and _place(row) in uniform
    ]
    return round(max(0.0, median(ratios) - 1.0), 4) if ratios else None


def _place(row: Mapping[str, Any]) -> tuple[int, int, int, int]:
    depth = row["k"] if row["depth"] is None else row["depth"]
    return row["batch"], row["prompt"], row["k"], depth


def _growth(bench: Bench, settings: list[Setting]) -> int:
    """The most tokens that a request gains while all settings are timed."""
    return sum((1 + each.k + each.ragged) * (bench.extent.steps + 6) for each in settings)


def _fits(bench: Bench, batch: int, context: int) -> bool:
    machine = bench.machine
    if not machine.gpu:
        return context < machine.max_model_len
    room = FILLED * machine.kv_gib * 2**30 / KV_BYTES_PER_TOKEN
    return context < machine.max_model_len and batch * context <= room


def _shown(rows: list[dict[str, object]] | None) -> list[tuple[object, ...]]:
    return [(row.get("k"), row.get("depth"), row.get("ragged"), row["ms"]) for row in rows or ()]
