"""What a step did, read from SGLang's result, as a `StepOutcome`.

Acceptance is read where SGLang has it on the CPU and before it counts it itself, for the requests
SGLang counts: those neither finished nor retracted since the step was launched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adaptive_spec.step import IntArray, StepContext, StepOutcome

MOST_IN_FLIGHT = 4
"""Steps launched without results; more than that means that some will never come."""


class RunningStep:
    """A decode step between its launch and its results.

    Attributes:
        names: [B] its requests, by which its results are known.
        context: what it was planned with; None for one that a fault of ours left unplanned.
        k: K that was decided, or SGLang's own.
        not_before: earliest time its work is counted from; see `StepClock`.
    """

    __slots__ = ("context", "k", "names", "not_before")

    def __init__(self, names: Sequence[str | None]) -> None:
        self.names = names
        self.context: StepContext | None = None
        self.k = 0
        self.not_before = -math.inf


class Reading:
    """Results of a step as they were before SGLang applied them.

    Attributes:
        step: the step.
        requests: those whose results count.
        rows: their positions in the batch.
        accepted: [R] accepted drafts.
        lengths: [R] tokens emitted before.
        k: K that really ran.
    """

    __slots__ = ("accepted", "k", "lengths", "now", "requests", "rows", "seconds", "step")

    def __init__(self, step: RunningStep, result: Any, batch: Any) -> None:
        self.step = step
        drafted = getattr(result, "speculative_num_draft_tokens", None)
        # With a chain there is one node more than drafts: the token that was sampled last.
        self.k = step.k if drafted is None else int(drafted) - 1
        lengths = result.accept_lens.tolist()
        bonus = int(getattr(result, "num_non_draft_tokens_per_req", 1))
        alive = [
            row
            for row, request in enumerate(batch.reqs)
            if not request.is_retracted and not request.finished()
        ]
        self.rows = alive
        self.requests = [batch.reqs[row] for row in alive]
        self.accepted: IntArray = np.array([lengths[row] - bonus for row in alive], dtype=np.int64)
        self.lengths: IntArray = np.array([len(r.output_ids) for r in self.requests], np.int64)
        self.seconds = math.nan
        self.now = 0.0


def build_outcome(reading: Reading) -> StepOutcome | None:
    """The outcome, after SGLang has appended the tokens and applied its stop conditions."""
    context = reading.step.context
    if context is None:
        return None
    after = np.array([len(r.output_ids) for r in reading.requests], dtype=np.int64)
    rows = np.array(reading.rows, dtype=np.int64)
    k = reading.k
    return StepOutcome(
        step=context.step,
        slots=context.slots[rows],
        verified=np.full(len(rows), k, dtype=np.int64),
        accepted=reading.accepted.clip(0, k),
        emitted=after - reading.lengths,
        batch_size=context.batch_size,
        batch_tokens=context.batch_size * (k + 1),
        context_tokens=int(context.context_tokens.sum()),
        prefill_tokens=0,
        draft_depth=k,
        ragged=False,
        seconds=reading.seconds,
        now=reading.now,
    )
