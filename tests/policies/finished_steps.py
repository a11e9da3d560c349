"""Steps of a batch of eight that ran, for policies that learn from them."""

from __future__ import annotations

import numpy as np

from adaptive_spec import Level
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.step import Capability, FinishedStep, SpecPlan, StepContext, StepOutcome

KMAX, BATCH = 4, 8


def context(step: int, depth: int, level: Level = Level.FULL, **changes) -> StepContext:
    possible = np.full(BATCH, KMAX, dtype=np.int64)
    values = dict(
        step=step,
        capability=Capability(level=level, max_draft_tokens=KMAX),
        request_ids=[f"r{i}" for i in range(BATCH)],
        slots=np.arange(BATCH, dtype=np.int64),
        context_tokens=np.full(BATCH, 100, dtype=np.int64),
        draft_available=np.minimum(possible, depth),
        draft_possible=possible,
        engine_k=KMAX,
        tpot_target=np.full(BATCH, np.inf),
        task=np.full(BATCH, -1, dtype=np.int64),
        temperature=np.zeros(BATCH),
        now=float(step),
    )
    return StepContext(**(values | changes))


def outcome(plan: SpecPlan, verified: np.ndarray | None = None, seconds: float = 0.01):
    ran = plan.verify if verified is None else verified
    return StepOutcome(
        step=plan.step,
        slots=np.arange(BATCH, dtype=np.int64),
        verified=ran,
        accepted=ran // 2,
        emitted=ran // 2 + 1,
        batch_size=BATCH,
        batch_tokens=BATCH + int(ran.sum()),
        context_tokens=100 * BATCH,
        prefill_tokens=0,
        draft_depth=plan.draft_depth,
        ragged=False,
        seconds=seconds,
    )


def finished(now: StepContext, plan: SpecPlan, verified: np.ndarray | None = None) -> FinishedStep:
    return finished_step(now, plan, outcome(plan, verified))
