"""What a step did, read from vLLM's outputs, as a `StepOutcome`.

Labels count what really ran: K from `SchedulerOutput`, without the placeholders that fill up
drafts a grammar rejected, and only for requests that were decoding when the step was planned (an
admitted request may be padded with placeholder drafts; that is not speculation). Output of a
request that was preempted or has ended since is left out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.adapters.vllm.draft_signal.values import DraftSignals
from adaptive_spec.step import IntArray, SpecPlan, StepContext, StepOutcome


class PlannedStep:
    """A step between its scheduling and its results."""

    __slots__ = ("context", "late_signals", "not_before", "output", "passes", "plan")

    def __init__(self, context: StepContext, plan: SpecPlan) -> None:
        self.context = context
        self.plan = plan
        self.output: Any = None
        """vLLM's SchedulerOutput."""
        self.late_signals: DraftSignals | None = None
        """What the drafter showed of these drafts, if it came after the step was planned."""
        self.not_before = -math.inf
        """Earliest time its duration is counted from; see `StepClock`."""
        self.passes: int | None = None
        """Passes of the drafter that ran, where it was ended early; else as many as planned."""


class Reading(NamedTuple):
    """Results of a step as they were before vLLM processed them.

    Attributes:
        requests: the decoding requests whose results count.
        labels: [4, B] slot, verified, accepted, tokens so far; a contiguous row each.
    """

    step: PlannedStep
    requests: list[Any]
    labels: IntArray
    batch_size: int
    batch_tokens: int
    context_tokens: int
    ragged: bool
    seconds: float
    now: float


def read_results(
    step: PlannedStep, results: Any, alive: dict[str, Any], seconds: float, now: float
) -> Reading | None:
    """Read a step's results before vLLM consumes them; None if no request decoded in it.

    Args:
        step: the step they belong to.
        results: vLLM's ModelRunnerOutput.
        alive: the scheduler's requests by id.
        seconds: duration of the step.
        now: time of completion.
    """
    output, context = step.output, step.context
    scheduled, drafts = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
    invalid = output.num_invalid_spec_tokens or {}
    sampled, index_of = results.sampled_token_ids, results.req_id_to_index
    requests: list[Any] = []
    rows: list[tuple[int, int, int, int]] = []
    batch_size = batch_tokens = context_tokens = 0
    smallest, largest = math.inf, -1
    for request_id, slot, length in zip(
        context.request_ids, context.slots.tolist(), context.context_tokens.tolist(), strict=True
    ):
        tokens = scheduled.get(request_id)
        if tokens is None:
            continue
        batch_size += 1
        batch_tokens += tokens
        context_tokens += length
        verified = len(drafts.get(request_id, ()))
        smallest, largest = min(smallest, verified), max(largest, verified)
        request = alive.get(request_id)
        if request is None or request.is_finished():
            continue
        if getattr(request, "num_stale_output_tokens", 0) > 0:  # vLLM 0.24 keeps no count
            continue
        generated = sampled[index_of[request_id]] if sampled else ()
        if not len(generated):
            continue
        verified -= invalid.get(request_id, 0)
        requests.append(request)
        rows.append((slot, verified, min(len(generated) - 1, verified), request.num_tokens))
    if batch_size == 0:
        return None
    return Reading(
        step=step,
        requests=requests,
        labels=np.ascontiguousarray(np.array(rows, dtype=np.int64).reshape(len(rows), 4).T),
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        context_tokens=context_tokens,
        ragged=largest > smallest,
        seconds=seconds,
        now=now,
    )


def build_outcome(reading: Reading) -> StepOutcome:
    """The outcome, after vLLM has appended the tokens and applied its stop conditions."""
    step, labels = reading.step, reading.labels
    output, context = step.output, step.context
    shown = None
    if step.late_signals is not None:
        names = [request.request_id for request in reading.requests]
        shown = step.late_signals.rows(names, context.capability.max_draft_tokens)
    # A plain number, also after OFF-cold.
    depth = int(output.num_spec_tokens_to_schedule) if step.passes is None else step.passes
    after = np.array([request.num_tokens for request in reading.requests], dtype=np.int64)
    return StepOutcome(
        step=context.step,
        slots=labels[0],
        verified=labels[1],
        accepted=labels[2],
        emitted=after - labels[3],
        batch_size=reading.batch_size,
        batch_tokens=reading.batch_tokens,
        context_tokens=reading.context_tokens,
        prefill_tokens=output.total_num_scheduled_tokens - reading.batch_tokens,
        draft_depth=depth,
        ragged=reading.ragged,
        seconds=reading.seconds,
        now=reading.now,
        confidence=None if shown is None else shown[0],
        entropy=None if shown is None else shown[1],
    )
