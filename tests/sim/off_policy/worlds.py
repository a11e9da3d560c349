"""Simulated servers whose policy randomises K, and the same servers under a fixed K."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_spec.policy import Policy
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.load.base import ClosedLoad, OpenLoad
from adaptive_spec.sim.load.request import Request
from adaptive_spec.step import Level, Mode, SpecPlan
from tests.sim.small_server import PlainHardware, closed_load, independent, server

KMAX = 6
HARDWARE = PlainHardware(fixed=5e-3, token=3e-4, context=0.0)
RECORDS, POSITIONS = 32, 2_000
EASY, HARD = 0.9, 0.4


class Drawn(StatelessPolicy):
    """Draws from K values with probabilities that depend on the task or on the batch size.

    `easy` and `hard` are (K, probability) tables: for requests of either task if `by_request`,
    else for one K of a batch of up to 4 and of more.
    """

    name = "drawn"

    def __init__(
        self,
        seed: int,
        easy: dict[int, float],
        hard: dict[int, float],
        *,
        by_request: bool,
        recorded: bool = True,
    ) -> None:
        self._random = np.random.default_rng([seed, 77])
        self._tables = [(np.array(list(t)), np.array(list(t.values()))) for t in (easy, hard)]
        self._by_request = by_request
        self._recorded = recorded
        self._drawn: tuple[int, float] | None = None

    def plan(self, context):
        if self._by_request:
            return self._per_request(context)
        values, chances = self._tables[int(context.batch_size > 4)]
        at = self._random.choice(len(values), p=chances)
        drafted, propensity = int(values[at]), float(chances[at])
        # Where depth follows, what was drafted for is verified a step later.
        k, chance = (drafted, propensity)
        if context.capability.steers_depth:
            k, chance = self._drawn or (drafted, propensity)
            self._drawn = drafted, propensity
        verify = np.minimum(context.draft_available, k)
        limits = context.draft_possible
        whole = (verify == np.minimum(limits, k)).all() and (limits >= KMAX).all()
        return self._plan(context, verify, drafted, np.full(len(verify), chance) if whole else None)

    def _per_request(self, context):
        verify = np.zeros(context.batch_size, dtype=np.int64)
        propensity = np.ones(context.batch_size)
        for label, (values, chances) in enumerate(self._tables):
            rows = np.flatnonzero(context.task == label)
            drawn = self._random.choice(len(values), size=len(rows), p=chances)
            verify[rows] = np.minimum(values[drawn], context.draft_available[rows])
            for row in rows:
                same = np.minimum(values, context.draft_available[row]) == verify[row]
                propensity[row] = chances[same].sum()
        return self._plan(context, verify, KMAX, propensity)

    def _plan(self, context, verify, depth, propensity):
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=depth,
            mode=Mode.ON,
            reason="drawn",
            propensity=propensity if self._recorded else None,
        )


def drafts_of(hazards: dict[str, float], seed: int) -> AcceptanceData:
    """Records of tasks whose drafts are accepted so often; enough for requests not to share one."""
    parts = [
        independent(hazard, RECORDS * POSITIONS, seed=31 * seed + number)
        for number, hazard in enumerate(hazards.values())
    ]
    records = RECORDS * len(parts)
    return replace(
        parts[0],
        accepted=np.concatenate([part.accepted for part in parts]),
        offsets=np.arange(records + 1) * POSITIONS,
        prompt_tokens=np.full(records, 10),
        labels=tuple(label for label in hazards for _ in range(RECORDS)),
    )


def mixed_server(policy: Policy, seed: int, *, output: int, **options: Any) -> Engine:
    """Eight requests at a time, half of either task."""

    def requests():
        number = 0
        while True:
            task = ("easy", "hard")[number % 2]
            yield Request(
                id=f"r{number}", arrival=0.0, prompt_tokens=10, output_tokens=output, task=task
            )
            number += 1

    return server(
        ClosedLoad(requests(), 8),
        policy,
        data=drafts_of({"easy": EASY, "hard": HARD}, seed),
        hardware=HARDWARE,
        seed=seed,
        timing_noise=0.05,
        **{"max_draft_tokens": KMAX, "level": Level.VERIFY, "kv_tokens": 1 << 30, **options},
    )


def busier_server(policy: Policy, seed: int, busy_after: float, **options: Any) -> Engine:
    """Four endless requests, and twelve more after a while; drafts all alike."""
    arrivals = [0.0] * 4 + [busy_after] * 12
    load = OpenLoad(
        iter(
            Request(id=f"r{at}", arrival=arrival, prompt_tokens=10, output_tokens=1_000_000)
            for at, arrival in enumerate(arrivals)
        )
    )
    return server(
        load,
        policy,
        data=drafts_of({"": 0.8}, seed),
        hardware=HARDWARE,
        seed=seed,
        timing_noise=0.05,
        **{"max_draft_tokens": KMAX, "level": Level.FULL, "kv_tokens": 1 << 30, **options},
    )


def prompted_server(policy: Policy, seed: int, **options: Any) -> Engine:
    """Eight requests at a time, alike, whose prompts take about as long as their decoding."""
    return server(
        closed_load(8, prompt=200, output=60),
        policy,
        data=drafts_of({"": 0.8}, seed),
        hardware=HARDWARE,
        seed=seed,
        timing_noise=0.05,
        **{"max_draft_tokens": KMAX, "level": Level.VERIFY, "kv_tokens": 1 << 30, **options},
    )


def run_steps(engine: Engine, steps: int) -> None:
    """Run so many steps and close the trace."""
    engine.run(warmup_steps=steps, max_tokens=1)


def record(make: Any, policy: Policy, seed: int, folder: Path, steps: int, **options: Any) -> Path:
    """Run a server with a trace."""
    run_steps(make(policy, seed, trace_directory=str(folder), **options), steps)
    return folder
