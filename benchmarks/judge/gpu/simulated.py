"""The simulator against the sweep: the same closed loops on the measured profile.

Nothing is fitted to the sweep. Hardware and acceptance come from the stage `step_costs`; compared
are ratios of throughput to no speculation, arm by arm and load by load.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from adaptive_spec import AdaptiveSpecError, Level, build_policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.recorded import read_step_trace
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.registry import hardware
from adaptive_spec.sim.load.base import ClosedLoad
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.load.step_trace import read_step_trace as read_requests

from ..arms import GOODPUT, NONE, is_static
from ..rows import WARM
from .profile import ACCEPTANCE, PARTS

TOKENS_PER_CLIENT = 2000
WARM_UP_STEPS = 100
OURS = f"{GOODPUT} {WARM}"


def errors(
    out: Path, traces: Path, rows: list[dict[str, Any]], engine: Mapping[str, Any]
) -> dict[str, Any]:
    """Simulate the arms of a sweep's rows (`summary.sweep`) at temperature above 0.

    Args:
        out: folder with profile.json.
        traces: folder with the parts that `profile.split` has written.
        rows: of one method and temperature, those of no speculation included.
        engine: `kmax`, `rungs`, `max_num_seqs`, `gpu`, `method`, `output_tokens`.

    Returns:
        A row for each arm and load with the measured and simulated ratio, and the mean absolute
        error; `error` if something needed was not recorded.
    """
    recorded = traces / PARTS / ACCEPTANCE
    if not (out / "profile.json").exists():
        return {"error": "no hardware profile was measured"}
    try:
        acceptance = read_step_trace(recorded, depth=engine["kmax"])
        prompts = tuple(request.prompt_tokens for request in read_requests(recorded))
        machine = hardware(str(out / "profile.json"))
    except AdaptiveSpecError as error:
        return {"error": str(error)}
    temperature = max((row["temperature"] for row in rows), default=0.0)
    found = []
    none: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: row["arm"] != NONE):
        name, shown = row["arm"], row["arm"] in (NONE, OURS) or is_static(row["arm"])
        if row["temperature"] != temperature or not shown:
            continue
        requests = _requests(prompts, engine["output_tokens"], temperature)
        rate = _rate(name, row["load"], requests, acceptance, machine, engine)
        if name == NONE:
            none[row["load"]] = rate
        elif row["load"] in none and row["over_none"] is not None:
            measured, simulated = row["over_none"].middle, rate / none[row["load"]]
            found.append(
                {
                    "load": row["load"],
                    "arm": name,
                    "measured": measured,
                    "simulated": round(simulated, 4),
                    "error": round(simulated / measured - 1.0, 4),
                }
            )
    if not found:
        return {"error": "no arm was measured beside no speculation"}
    return {"cells": found, "mean_error": round(mean(abs(row["error"]) for row in found), 4)}


def _rate(
    arm: str,
    clients: int,
    requests: Iterator[Request],
    acceptance: AcceptanceData,
    machine: Hardware,
    engine: Mapping[str, Any],
) -> float:
    """Tokens per second of an arm in the simulator."""
    policy = build_policy(GOODPUT if arm == OURS else "off")
    if is_static(arm):
        policy = build_policy("static", {"k": int(arm[1:])})
    options = EngineOptions(
        max_draft_tokens=engine["kmax"],
        max_running=engine["max_num_seqs"],
        level=Level.UNIFORM if engine["gpu"] else Level.FULL,
        ladder=tuple(engine["rungs"]) if engine["gpu"] else (),
        delay=1 if engine["gpu"] else 0,
        late_confidence=engine["gpu"],
    )
    result = Engine(
        ClosedLoad(requests, clients),
        acceptance,
        drafter("none" if arm == NONE else engine["method"]),
        machine,
        policy,
        options,
        seed=0,
    ).run(max_tokens=TOKENS_PER_CLIENT * clients, warmup_steps=WARM_UP_STEPS)
    return result.tokens / result.seconds


def _requests(
    prompts: tuple[int, ...], output_tokens: int, temperature: float
) -> Iterator[Request]:
    for number, prompt in enumerate(itertools.cycle(prompts)):
        yield Request(
            id=f"request-{number}",
            arrival=0.0,
            prompt_tokens=prompt,
            output_tokens=output_tokens,
            temperature=temperature,
        )
