"""Preparation of the baselines: cost profiles, tables by batch size, thresholds.

A baseline that profiles its engine at start-up gets the machine's cost profile, with the limits of
a profile: context is priced for the target, and for the drafter at 512 tokens a request, as at
start-up. A baseline with a tuned table or threshold gets it from runs of every fixed K with a seed
that the leaderboard does not use: tables per acceptance set, drafter and hardware, as if users had
measured their own traffic; thresholds per drafter and hardware over all acceptance sets, since a
gate tuned to its traffic needs no threshold.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import msgspec

from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.policies.step_time.profile import CostProfile
from adaptive_spec.sim.baselines.engines.batch_table import tuned_table
from adaptive_spec.sim.drafters.registry import drafter as find_drafter
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.registry import hardware as find_hardware
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.sim.results.result import Result
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.sim.sweep.cells import Cell, Files, plan_cells
from adaptive_spec.sim.sweep.config import SweepConfig, load_sweep_config

SEED = 1_000
CONCURRENCY = (1, 4, 16, 64, 256)
PROFILED_CONTEXT = 512
"""Tokens of context per request at which the drafter's pass is profiled."""
TOKENS = (*range(1, 17), *range(20, 64, 4), *range(64, 256, 16), *range(256, 2049, 64))
REQUESTS, ITERATIONS = 10, 500
"""Windows of TensorRT-LLM's two gates."""

Setting = tuple[str, str, str]
"""Acceptance set, drafter, hardware."""
Runs = dict[int, list[Result]]
"""[Kmax + 1] runs of fixed K by concurrency."""


def tune(config_file: Path, folder: Path) -> None:
    """Write ``profiles/HARDWARE-DRAFTER.json`` and ``tuned.json`` into the folder."""
    config = load_sweep_config(config_file)
    needed = dict(_needed(config, plan_cells(config, Files(config_file.resolve().parent))))
    profiles = folder / "profiles"
    profiles.mkdir(exist_ok=True)
    for machine, drafter in sorted({(machine, drafter) for _, drafter, machine in needed}):
        profile = cost_profile(machine, drafter, config.engine["max_draft_tokens"])
        text = msgspec.json.format(msgspec.json.encode(profile), indent=0)
        (profiles / f"{machine}-{drafter}.json").write_bytes(text.replace(b",\n", b", ") + b"\n")
    runs = {}
    for setting, scenario in needed.items():
        runs[setting] = fixed(scenario)
        print(" / ".join(setting), flush=True)
    tuned: dict[str, dict[str, object]] = {"table": {}, "schedule": {}}
    for setting, found in runs.items():
        speeds = {load: dict(enumerate(_speeds(found[load]))) for load in found}
        table = tuned_table(speeds)
        tuned["table"][" / ".join(setting)] = table
        tuned["schedule"][" / ".join(setting)] = [(last, k) for _, last, k in table]
    tuned |= gates(runs)
    lines = [
        f"  {_json(name)}: {{\n"
        + ",\n".join(f"    {_json(key)}: {_json(value)}" for key, value in values.items())
        + "\n  }"
        for name, values in tuned.items()
    ]
    (folder / "tuned.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def cost_profile(machine: str, drafter: str, kmax: int) -> CostProfile:
    """What profiling this machine and drafter at start-up would find."""
    hardware = find_hardware(machine)
    step = StepTime(hardware, find_drafter(drafter), 0.0)

    def verify(batch_size: int, tokens: int, contexts: int, prompts: int) -> float:
        return step.verify(batch_size, tokens, contexts, prompts, 0, any_draft=False, ragged=False)

    def draft(depth: int, batch_size: int) -> float:
        contexts = PROFILED_CONTEXT * batch_size
        return step.draft(batch_size, depth, contexts, cold=False)

    tokens = list(dict.fromkeys(sorted({*TOKENS, *hardware.token_buckets})))
    per_request = verify(1, 64, 0, 0) - verify(0, 64, 0, 0)
    one, many = draft(kmax, 1) / kmax, draft(kmax, 64) / kmax
    per_draft_request = (many - one) / 63
    return CostProfile(
        name=f"{machine}, {drafter}",
        source=f"the simulator's hardware {machine}: {hardware_profile(machine).source}",
        tokens=tokens,
        seconds=[verify(0, each, 0, 0) for each in tokens],
        per_request=per_request,
        per_context_token=(verify(1, 64, 100_000, 0) - verify(1, 64, 0, 0)) / 100_000,
        per_prefill_token=max((verify(1, 1, 0, 2048) - verify(1, 1, 0, 1024)) / 1024, 0.0),
        draft_pass=one - per_draft_request,
        draft_pass_per_request=per_draft_request,
        any_draft=hardware.any_draft,
        any_draft_per_request=hardware.any_draft_per_request,
        any_draft_per_context_token=hardware.verify_per_context_token,
    )


def fixed(scenario: Scenario) -> Runs:
    """Every fixed K at every concurrency."""
    found: Runs = {}
    for load in CONCURRENCY:
        changed = msgspec.structs.replace(
            scenario,
            load=f"closed:{load}",
            tokens=max(1_000 * load, 6_000),
            warmup_tokens=500 * load,
        )
        found[load] = [
            changed.run(StaticPolicy(StaticOptions(k=k)), f"K = {k}")
            for k in range(scenario.engine.max_draft_tokens + 1)
        ]
    return found


def gates(runs: dict[Setting, Runs]) -> dict[str, dict[str, object]]:
    """Options of TensorRT-LLM's gates per drafter and hardware, if they closed at once.

    K and threshold with the best mean over acceptance sets and loads.
    """
    request: dict[str, object] = {}
    window: dict[str, object] = {}
    for drafter, machine in sorted({setting[1:] for setting in runs}):
        mine = {
            setting[0]: found
            for setting, found in runs.items()
            if setting[1:] == (drafter, machine)
        }
        length, length_k = _threshold(mine, rate=False)
        rate, rate_k = _threshold(mine, rate=True)
        place = f"* / {drafter} / {machine}"
        request[place] = (
            f"acceptance_window={REQUESTS},acceptance_length_threshold={length:.3f},k={length_k}"
        )
        window[place] = (
            f"acceptance_rate_window_size={ITERATIONS},"
            f"acceptance_rate_threshold={rate:.3f},k={rate_k}"
        )
    return {"request_gate": request, "window_gate": window}


def _threshold(runs: dict[str, Runs], *, rate: bool) -> tuple[float, int]:
    scored = []
    kmax = len(next(iter(runs.values()))[CONCURRENCY[0]]) - 1
    for k in range(1, kmax + 1):
        level = {
            name: mean(_signal(found[load][k], rate) for load in found)
            for name, found in runs.items()
        }
        ordered = sorted(level.values())
        halfway = [(below + above) / 2 for below, above in itertools.pairwise(ordered)]
        for threshold in (0.0, *halfway):
            score = mean(
                speeds[k if level[name] >= threshold else 0] / max(speeds)
                for name, found in runs.items()
                for speeds in map(_speeds, found.values())
            )
            scored.append((score, threshold, k))
    _, threshold, k = max(scored)
    return threshold, k


def _signal(result: Result, rate: bool) -> float:
    return result.accepted_per_step / result.mean_k if rate else result.accepted_per_step


def _speeds(results: list[Result]) -> list[float]:
    return [result.throughput_tok_s for result in results]


def _needed(config: SweepConfig, cells: tuple[Cell, ...]) -> Iterator[tuple[Setting, Scenario]]:
    """A scenario for each acceptance set, drafter and hardware; of phases, the first."""
    for cell in cells:
        name = cell.name
        yield (
            (name.acceptance, name.drafter, name.hardware),
            Scenario(
                load="closed:1",
                acceptance=cell.scenario.acceptance,
                drafter=name.drafter,
                hardware=cell.scenario.hardware,
                engine=config.engines()["default"],
                seed=SEED,
                hide_confidence=True,
            ),
        )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
