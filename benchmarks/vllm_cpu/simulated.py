"""Cells of the CPU benchmark in the simulator: the same arms, loads and lengths of runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean
from typing import Any

from adaptive_spec.policy import Policy, build_policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.load.base import ClosedLoad, Load
from adaptive_spec.sim.load.concurrency import VaryingClosedLoad
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.load.shapes import Piece
from adaptive_spec.sim.results.result import Result

KMAX = 6
MAX_RUNNING = 16
TOKENS = 100_000
WARM_UP_STEPS = 100
SEEDS = 30
"""Runs as short as the measured cells, for what is simulated as it was measured."""
PAUSE_SECONDS = 30.0
"""Long enough for the requests of a load to end before the next load begins."""


@dataclass(frozen=True)
class Rates:
    """Figures of one run, measured or simulated."""

    tokens_per_second: float
    tokens_per_step: float
    step_seconds: float


@dataclass(frozen=True)
class World:
    """What all simulated runs share."""

    hardware: Hardware
    acceptance: AcceptanceData
    prompt_tokens: tuple[int, ...]
    output_tokens: int
    temperature: float
    timing_noise: float

    def requests(self) -> Iterator[Request]:
        """Endless; lengths as recorded."""
        for number, prompt in enumerate(itertools.cycle(self.prompt_tokens)):
            yield Request(
                id=f"request-{number}",
                arrival=0.0,
                prompt_tokens=prompt,
                output_tokens=self.output_tokens,
                temperature=self.temperature,
            )

    def engine(self, arm: str, policy: Policy, load: Load, seed: int) -> Engine:
        """A simulated server for an arm."""
        return Engine(
            load,
            self.acceptance,
            drafter("none" if arm == "none" else "draft_model"),
            self.hardware,
            policy,
            EngineOptions(
                max_draft_tokens=KMAX, max_running=MAX_RUNNING, timing_noise=self.timing_noise
            ),
            seed=seed,
        )

    def closed(self, arm: str, table: Any, concurrency: int, seed: int) -> Engine:
        """The same in a closed loop, with a fresh policy."""
        load = ClosedLoad(self.requests(), concurrency)
        return self.engine(arm, policy_for(arm, table), load, seed)


def policy_for(arm: str, table: list[list[int]] | None) -> Policy:
    """The policy that an arm of the benchmark is in the simulator."""
    if arm == "none":
        return build_policy("off")
    if arm == "schedule":
        return build_policy("batch_table", {"table": table}, baselines=True)
    if arm.startswith("ours"):
        return build_policy("goodput")
    return build_policy("static", {"k": int(arm[-1])})


def rates(runs: list[Result]) -> Rates:
    """Some runs together."""
    return Rates(
        tokens_per_second=sum(run.tokens for run in runs) / sum(run.seconds for run in runs),
        tokens_per_step=mean(1.0 + run.accepted_per_step for run in runs),
        step_seconds=sum(run.seconds for run in runs) / sum(run.steps for run in runs),
    )


def warm_runs(world: World, results: dict[str, Any]) -> dict[int, list[Result]]:
    """What ours, warm, does at each load, with the history that it had when it was measured.

    It learns at each load in turn, then serves the repeats, load by load.
    """
    loads = sorted({cell["concurrency"] for cell in results["cells"]})
    repeats = 1 + max(cell["repeat"] for cell in results["cells"])
    learning = [(load, results["learn_seconds"], False) for load in loads]
    cells = [(load, results["seconds_per_cell"], True) for load in loads]
    history = learning + cells * repeats
    pieces = [
        piece
        for load, seconds, _ in history
        for piece in (Piece(seconds, load, load), Piece(PAUSE_SECONDS, 0, 0))
    ]
    found: dict[int, list[Result]] = {load: [] for load in loads}
    for seed in range(SEEDS):
        load = VaryingClosedLoad(world.requests(), pieces)
        engine = world.engine("ours", build_policy("goodput"), load, seed)
        end = 0.0
        for concurrency, seconds, kept in history:
            result = engine.run(max_seconds=end + seconds)
            end += seconds + PAUSE_SECONDS
            engine.run(max_seconds=end)
            if kept:
                found[concurrency].append(result)
    return found


def short_runs(
    world: World, arm: str, table: Any, concurrency: int, seconds: float
) -> list[Result]:
    """Runs as long as what was measured, of a policy that has learned nothing."""
    return [
        world.closed(arm, table, concurrency, seed).run(max_seconds=seconds)
        for seed in range(SEEDS)
    ]


def long_run(world: World, arm: str, table: Any, concurrency: int) -> list[Result]:
    """One run in which chance counts little."""
    engine = world.closed(arm, table, concurrency, 0)
    return [engine.run(max_tokens=TOKENS, warmup_steps=WARM_UP_STEPS)]
