"""What a step did, read from vLLM's outputs, as a `StepOutcome`.

Labels count what really ran: K from `SchedulerOutput`, without the placeholders that fill up
drafts a grammar rejected, and only for requests that were decoding when the step was planned (an
admitted request may be padded with placeholder drafts; that is not speculation). Output of a
request that was preempted or has ended since is left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.adapters.vllm.draft_signal.values import DraftSignals, Wanted
from adaptive_spec.step import SpecPlan, StepContext, StepOutcome


class PlannedStep:
    """A step between its plan and its results.

    Attributes:
        context: what the plan was made from.
        plan: the decision.
        cuts: (request, K) of the requests that verify less than Kmax; empty if the plan leaves
            vLLM's own K.
        wanted: what is to be read of the drafts made at the end of the step.
    """

    __slots__ = (
        "context",
        "cuts",
        "late_signals",
        "not_before",
        "output",
        "passes",
        "plan",
        "preempted",
        "wanted",
    )

    def __init__(
        self, context: StepContext, plan: SpecPlan, cuts: Sequence[tuple[Any, int]], wanted: Wanted
    ) -> None:
        self.context = context
        self.plan = plan
        self.cuts = cuts
        self.wanted = wanted
        self.output: Any = None
        """vLLM's SchedulerOutput."""
        self.late_signals: DraftSignals | None = None
        """What the drafter showed of these drafts, if it came after the step was planned."""
        self.not_before = -math.inf
        """Earliest time its duration is counted from; see `StepClock`."""
        self.passes: int | None = None
        """Passes of the drafter that ran, where it was ended early; else as many as planned."""
        self.preempted: frozenset[str] = frozenset()
        """Requests preempted while the step was under way: vLLM may drop their output."""


class Arrived(NamedTuple):
    """Results of a step, with what vLLM is about to change in them.

    Attributes:
        results: vLLM's ModelRunnerOutput.
        generated: tokens by row of the results, before vLLM cuts what follows a stop.
        seconds: duration of the step.
        now: time of completion.
    """

    step: PlannedStep
    results: Any
    generated: Sequence[int]
    seconds: float
    now: float


def build_outcome(
    arrived: Arrived, alive: Mapping[str, Any], ended: Collection[str]
) -> StepOutcome | None:
    """The outcome, after vLLM has processed the results; None if no request decoded in the step.

    Args:
        arrived: the results.
        alive: the scheduler's requests by id.
        ended: requests that these results ended.
    """
    step, results, generated = arrived.step, arrived.results, arrived.generated
    output, context = step.output, step.context
    scheduled, drafts = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
    invalid = output.num_invalid_spec_tokens or {}
    tokens_of, index_of = results.sampled_token_ids, results.req_id_to_index
    names: list[str] = []
    rows: list[int] = []
    verified: list[int] = []
    accepted: list[int] = []
    emitted: list[int] = []
    absent: list[int] = []
    batch_tokens = 0
    smallest, largest = math.inf, -1
    for row, name in enumerate(context.request_ids):
        tokens = scheduled.get(name)
        if tokens is None:
            absent.append(row)
            continue
        batch_tokens += tokens
        k = len(drafts.get(name, ()))
        if k < smallest:
            smallest = k
        if k > largest:
            largest = k
        if name not in ended:
            request = alive.get(name)
            if request is None or name in step.preempted or request.is_finished():
                continue
        index = index_of[name]
        count = generated[index] if generated else 0
        if not count:
            continue
        if invalid:
            k -= invalid.get(name, 0)
        names.append(name)
        rows.append(row)
        verified.append(k)
        accepted.append(count - 1 if count <= k else k)
        emitted.append(len(tokens_of[index]))
    batch_size = context.batch_size - len(absent)
    if batch_size == 0:
        return None
    context_tokens = int(context.context_tokens.sum())
    if absent:
        context_tokens -= int(context.context_tokens[absent].sum())
    shown = None
    if step.late_signals is not None:
        shown = step.late_signals.rows(names, context.capability.max_draft_tokens)
    # A plain number, also after OFF-cold.
    depth = int(output.num_spec_tokens_to_schedule) if step.passes is None else step.passes
    everyone = len(rows) == context.batch_size
    return StepOutcome(
        step=context.step,
        slots=context.slots if everyone else context.slots[np.array(rows, dtype=np.int64)],
        verified=np.array(verified, dtype=np.int64),
        accepted=np.array(accepted, dtype=np.int64),
        emitted=np.array(emitted, dtype=np.int64),
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        context_tokens=context_tokens,
        prefill_tokens=output.total_num_scheduled_tokens - batch_tokens,
        draft_depth=depth,
        ragged=largest > smallest,
        seconds=arrived.seconds,
        now=arrived.now,
        confidence=None if shown is None else shown[0],
        entropy=None if shown is None else shown[1],
    )
