"""CPU time of the plugin in a step, measured once and committed: `cpu.json`.

    python -m benchmarks.judge.cpu          # two minutes on an idle core; renews cpu.json
    python -m benchmarks.judge.cpu sglang   # in SGLang's environment: prints a table

Measured in the scripted engine, by number of requests: what the device waits for (`waits`: the
hooks between a step's results and the next launch), and all of the engine core's thread (`core`:
vLLM's scheduler and the plugin, without the script). With synchronous scheduling a step is longer
by `waits`. With asynchronous scheduling the device waits only where `core` takes longer than its
step.

On SGLang's scheduler, its plain loop and EAGLE: a turn of the loop without the script, what of ours
delays the next launch, and what runs in all, in part while the device works.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from .arms import parse_arm
from .cells import Cell
from .own_code import SCHEDULER_SIDE, Stopwatch
from .rows import SIZES, Row

FILE = Path(__file__).with_name("cpu.json")
MEASURED = 1, 16, 64, 256, 512
SGLANG_MEASURED = 1, 16, 64
STEPS = 150
_WAITED_FOR = tuple(name for name in SCHEDULER_SIDE if not name.endswith((".think", ".freed")))
_SCRIPT = "benchmarks.judge.vllm_worker:Script.execute"


class Times(msgspec.Struct, frozen=True):
    """Seconds of CPU by number of requests (`MEASURED`)."""

    waits: list[float]
    core: list[float]


class Charges(msgspec.Struct, frozen=True):
    """Of arms with the plugin, with confidence and without; and of arms without it."""

    plain: Times
    confidence: Times
    off: Times


@cache
def charges() -> Charges:
    """Read the committed table."""
    return msgspec.json.decode(FILE.read_bytes(), type=Charges)


def charged(row: Row, cell: Cell) -> float:
    """Seconds that the device waits for CPU in the whole run of an arm."""
    table = charges()
    policy = parse_arm(row.runs or row.arm).policy
    times = table.off
    if policy:
        shown = any(name.startswith("record:") for name in _records(cell))
        times = table.confidence if shown or "@auc" in str(_records(cell)) else table.plain
    waits, core = _by_size(times.waits), _by_size(times.core)
    found = 0.0
    for size, (steps, _, seconds) in row.sizes.items():
        place = SIZES.index(int(size))
        if cell.ahead:
            found += max(steps * core[place] - seconds, 0.0)
        else:
            found += steps * waits[place]
    return found


def _records(cell: Cell) -> list[str]:
    return [*cell.traffic.records, *(r for piece in cell.traffic.pieces for r in piece.records)]


def _by_size(values: Sequence[float]) -> list[float]:
    found: list[float] = np.interp(SIZES, MEASURED, values).tolist()
    return found


def measure() -> Charges:
    """Run and time."""
    from .device import device
    from .engines import EngineKind
    from .records import lines
    from .scripted_vllm import ScriptedVllm

    found: dict[str, Times] = {}
    for name, method, records, arm in (
        ("plain", "eagle", "hazard:0.7", "goodput"),
        ("confidence", "draft_model", "record:good_t0.8", "goodput"),
        ("off", "eagle", "hazard:0.7", "k2"),
    ):
        kmax = 6
        engine = ScriptedVllm(EngineKind(method, kmax))
        played = lines(records, method, kmax)
        engine.use(parse_arm(arm), device("h100-8b"))
        rows = [_measured(engine, played, clients) for clients in MEASURED]
        found[name] = Times([row[0] for row in rows], [row[1] for row in rows])
        engine.close()
    return Charges(**found)


def _measured(engine: Any, played: Any, clients: int) -> tuple[float, float]:
    """Seconds that the device waits for, and of the core: lower quartiles of the steps."""
    names = [f"m{clients}-{number}" for number in range(clients)]
    for number, name in enumerate(names):
        engine.submit(name, 64, 2000, played, number * 97)
    waits, core = [], []
    with Stopwatch(processor=False).watching([*_WAITED_FOR, _SCRIPT]) as watch:
        for step in range(STEPS):
            watch.seconds.clear()
            began = time.perf_counter()
            engine.step()
            spent = time.perf_counter() - began
            script = watch.seconds.pop("Script.execute", 0.0)
            if step >= STEPS // 3:
                waits.append(sum(watch.seconds.values()))
                core.append(spent - script)
    engine.scheduler.finish_requests(names, _aborted())
    engine.script.texts.clear()
    engine.step()
    return round(float(np.percentile(waits, 25)), 7), round(float(np.percentile(core, 25)), 7)


def sglang_rows() -> list[list[str]]:
    """Run SGLang's scheduler with `goodput` and time it, a row for each number of requests."""
    from .device import device
    from .engines import SGLANG, EngineKind
    from .records import lines
    from .scripted_sglang import ScriptedSglang

    driver = "adaptive_spec.adapters.sglang.steps:StepDriver."
    ours = [driver + name for name in ("before_run", "read", "applied", "think")]
    script = [f"benchmarks.judge.scripted_sglang:Script.{name}" for name in ("prompts", "decode")]
    engine = ScriptedSglang(EngineKind("eagle", 7, engine=SGLANG))
    engine.use(parse_arm("goodput"), device("h100-8b"))
    played, rows, alive = lines("hazard:0.7", "eagle", 7), [], 0
    for clients in SGLANG_MEASURED:
        for number in range(alive, clients):
            engine.submit(f"m{number}", 64, 8 * STEPS * len(SGLANG_MEASURED), played, number * 97)
        alive = clients
        steps: list[tuple[float, float, float]] = []
        with Stopwatch(processor=False).watching([*ours, *script]) as watch:
            for _ in range(STEPS):
                watch.seconds.clear()
                began = time.perf_counter()
                engine.step()
                spent = time.perf_counter() - began
                mine = sum(s for name, s in watch.seconds.items() if name.startswith("Step"))
                scripted = watch.seconds["Script.prompts"] + watch.seconds["Script.decode"]
                waited = mine - watch.seconds["StepDriver.think"]
                steps.append((spent - scripted - mine, waited, mine))
        times = np.percentile(steps[STEPS // 3 :], 25, axis=0)
        rows.append([str(clients), *(f"{1e3 * each:.2f} ms" for each in times)])
    return rows


def _aborted() -> Any:
    from vllm.v1.request import RequestStatus

    return RequestStatus.FINISHED_ABORTED


def main() -> int:
    """Measure, and write the table."""
    if sys.argv[1:] == ["sglang"]:
        from . import setup
        from .figures import markdown
        from .processes import begin_anew

        begin_anew("benchmarks.judge.cpu", setup.environment(setup.SGLANG))
        heads = ["requests", "SGLang's loop", "ours, before a launch", "all of ours"]
        print(markdown(heads, sglang_rows()), flush=True)
        os._exit(0)  # SGLang's threads would keep the process
    from .scripted_vllm import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(measure()), indent=1) + b"\n")
    print(FILE.read_text(), file=sys.stderr)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
