"""The simulator against the sweep: the same closed loops on the measured profile.

Nothing is fitted to the sweep. Hardware and acceptance come from the stage `step_costs`; compared
are ratios of throughput to no speculation, arm by arm and load by load.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate
from adaptive_spec.step import Level

from ..arms import GOODPUT, NONE, is_static
from ..rows import WARM
from .profile import ACCEPTANCE, PARTS

TOKENS_PER_CLIENT = 2000
WARM_UP_STEPS = 100
OURS = f"{GOODPUT} {WARM}"


def errors(
    out: Path, traces: Path, rows: list[dict[str, Any]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Simulate the arms of a sweep's rows (`summary.sweep`) at the highest temperature.

    Args:
        out: folder with profile.json.
        traces: folder with the parts that `profile.split` has written.
        rows: of one method, those of no speculation included.
        options: of the run (`setups.Options`), and `rungs`.

    Returns:
        A row for each arm and load with the measured and simulated ratio, and the mean absolute
        error; `error` if something needed was not recorded.
    """
    if not (out / "profile.json").exists():
        return {"error": "no hardware profile was measured"}
    temperature = max((row["temperature"] for row in rows), default=0.0)
    found = []
    try:
        for row in rows:
            arm, load, measured = row["arm"], row["load"], row["over_none"]
            shown = measured and (arm == OURS or is_static(arm))
            if shown and row["temperature"] == temperature:
                alone = _rate(out, traces, NONE, load, options)
                ratio = _rate(out, traces, arm, load, options) / alone
                found.append(
                    {
                        "load": load,
                        "arm": arm,
                        "measured": measured.middle,
                        "simulated": round(ratio, 4),
                        "error": round(ratio / measured.middle - 1.0, 4),
                    }
                )
    except AdaptiveSpecError as error:
        return {"error": str(error)}
    if not found:
        return {"error": "no arm was measured beside no speculation"}
    return {"cells": found, "mean_error": round(mean(abs(row["error"]) for row in found), 4)}


def _rate(out: Path, traces: Path, arm: str, clients: int, options: Mapping[str, Any]) -> float:
    """Tokens per second of an arm in the simulator."""
    gpu = options["gpu"]
    scenario = Scenario(
        load=f"closed:{clients}",
        acceptance=(str(traces / PARTS / ACCEPTANCE),),
        drafter="none" if arm == NONE else options["method"],
        hardware=str(out / "profile.json"),
        engine=EngineOptions(
            max_draft_tokens=options["kmax"],
            max_running=options["max_num_seqs"],
            level=Level.UNIFORM if gpu else Level.FULL,
            ladder=tuple(options["rungs"]) if gpu else (),
            delay=1 if gpu else 0,
            late_confidence=gpu,
        ),
        tokens=TOKENS_PER_CLIENT * clients,
        warmup_steps=WARM_UP_STEPS,
    )
    policy = f"static:k={arm[1:]}" if is_static(arm) else GOODPUT if arm == OURS else "off"
    return simulate(scenario, parse_policy(policy)).throughput_tok_s
