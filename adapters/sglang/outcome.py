"""`StepOutcome` of a step, read from SGLang's result.

Acceptance is read where SGLang has it on the CPU and before it counts it itself, for the requests
SGLang counts: those neither finished nor retracted since the step was launched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adaptive_spec.engines.driver import Step
from adaptive_spec.per_request import sum_of
from adaptive_spec.step import IntArray, StepOutcome

MOST_IN_FLIGHT = 4
"""Steps launched without results; more than that means that some will never come."""


FOUND = "adaptive_spec_found"
"""Attribute of a result: [B] drafts found for each request; the rest is filler."""


class RunningStep(Step):
    """A decode step between its launch and its results.

    Where the step was planned ahead, the requests of its `context` may differ from `names`.

    Attributes:
        names: [B] its requests, by which its results are known.
        k: K that was decided, or SGLang's own.
    """

    __slots__ = ("k", "names")

    def __init__(self, names: Sequence[str | None]) -> None:
        super().__init__()
        self.names = names
        self.k = 0


class Reading:
    """Results of a step as they were before SGLang applied them.

    Attributes:
        step: the step.
        seconds: duration of the step; nan without a clean measurement.
        now: time of completion.
        requests: those whose results count.
        rows: their positions in the batch.
        accepted: [R] accepted drafts.
        emitted: [R] tokens emitted by the step, once SGLang has applied the results.
        k: K that really ran.
        tokens: verified tokens of each request.
        found: [R] drafts verified that a drafter has made: no filler.
    """

    __slots__ = (
        "accepted",
        "emitted",
        "found",
        "k",
        "now",
        "requests",
        "rows",
        "seconds",
        "step",
        "tokens",
    )

    def __init__(
        self,
        step: RunningStep,
        seconds: float,
        now: float,
        result: Any,
        batch: Any,
        k_of: Callable[[int], int],
    ) -> None:
        self.step, self.seconds, self.now = step, seconds, now
        drafted = getattr(result, "speculative_num_draft_tokens", None)
        self.tokens = step.k + 1 if drafted is None else int(drafted)
        self.k = k = step.k if drafted is None else k_of(self.tokens)
        lengths = result.accept_lens.tolist()
        bonus = int(getattr(result, "num_non_draft_tokens_per_req", 1))
        requests = batch.reqs
        self.rows = alive = [
            row for row, r in enumerate(requests) if not r.is_retracted and not r.finished()
        ]
        self.requests = [requests[row] for row in alive]
        found = getattr(result, FOUND, None)
        found = None if found is None else found.tolist()
        self.found = [k if found is None else min(k, found[row]) for row in alive]
        self.accepted = [lengths[row] - bonus for row in alive]
        self.emitted = [-len(request.output_ids) for request in self.requests]

    def applied(self) -> None:
        """Count the emitted tokens: SGLang has appended them and applied its stop conditions."""
        for row, request in enumerate(self.requests):
            # Drafts accepted beyond a request's end do not count.
            end = getattr(request, "finished_len", None)
            self.emitted[row] += len(request.output_ids) if end is None else end


def build_outcome(reading: Reading, slot_of: Callable[[str, Any], int]) -> StepOutcome | None:
    """Return the outcome of a step whose results SGLang has applied.

    Args:
        reading: the results.
        slot_of: slot of a request, by its name and itself.
    """
    context, names = reading.step.context, reading.step.names
    if context is None:
        return None
    size, k = len(names), reading.k
    if names != context.request_ids:  # planned ahead, and the batch has changed
        slots = _column([slot_of(r.rid, r) for r in reading.requests])
    else:
        slots = context.slots
        if len(reading.rows) < size:
            slots = slots[_column(reading.rows)]
    # Filler that happened to be right is no credit to the drafter. Otherwise it counts as rejected:
    # who plans K for a batch does not know who will have drafts, and all of them cost the same.
    pairs = zip(reading.accepted, reading.found, strict=True)
    right = [min(max(count, 0), most) for count, most in pairs]
    return StepOutcome(
        step=context.step,
        slots=slots,
        verified=np.full(len(slots), k),
        accepted=_column(right),
        emitted=_column(reading.emitted),
        batch_size=size,
        batch_tokens=size * reading.tokens,
        context_tokens=round(sum_of(context.context_tokens) / context.batch_size * size),
        prefill_tokens=0,
        draft_depth=k,
        ragged=False,
        seconds=reading.seconds,
        now=reading.now,
    )


def _column(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
