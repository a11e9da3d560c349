"""What a step did, read from vLLM's outputs, as a `StepOutcome`.

Labels count what really ran: K from `SchedulerOutput`, without the placeholders that fill up
drafts a grammar rejected, and only for requests that were decoding when the step was planned (an
admitted request may be padded with placeholder drafts; that is not speculation). Output of a
request that was preempted or has ended since is left out. Two kinds of drafts are no labels:

* drafts that no drafter has made for the request: `PlannedStep.not_drafted`;
* drafts behind a stop, which vLLM verifies and counts as accepted, but does not emit.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from adaptive_spec.adapters.vllm.copied_drafts import Copied
from adaptive_spec.adapters.vllm.draft_signal.values import DraftSignals, Wanted
from adaptive_spec.adapters.vllm.lookup import LookedUp, agreement
from adaptive_spec.engines.driver import Step
from adaptive_spec.step import IntArray, SpecPlan, StepContext, StepOutcome

_Value = TypeVar("_Value")


class _Everybody(Container[str]):
    """All requests."""

    def __contains__(self, name: object) -> bool:
        return True


EVERYBODY = _Everybody()


class PlannedStep(Step):
    """A step between its plan and its results.

    Attributes:
        context: what the plan was made from.
        plan: the decision.
        cuts: (request, K) of the requests that verify less than Kmax; empty if the plan leaves
            vLLM's own K.
        wanted: what is to be read of the drafts made at the end of the step.
        found: what was looked up; None without a second source.
    """

    context: StepContext

    __slots__ = (
        "copied",
        "cuts",
        "drafts_found",
        "found",
        "late_signals",
        "lost",
        "not_copied",
        "not_drafted",
        "output",
        "passes",
        "plan",
        "wanted",
    )

    def __init__(
        self,
        context: StepContext,
        plan: SpecPlan,
        cuts: Sequence[tuple[Any, int]],
        wanted: Wanted,
        found: LookedUp | None = None,
    ) -> None:
        super().__init__(context)
        self.found = found
        self.copied: Copied | None = None
        """The worker is told this of the requests that verify looked-up drafts."""
        self.not_copied = 0
        """Requests that verified other drafts than the looked-up ones: the worker did not copy."""
        self.drafts_found: Sequence[Sequence[int]] | None = None
        """[B] of what was looked up, the drafts; known when the step's results arrive."""
        self.plan = plan
        self.cuts = cuts
        self.wanted = wanted
        self.output: Any = None
        """vLLM's SchedulerOutput."""
        self.late_signals: DraftSignals | None = None
        """What the drafter showed of these drafts, if it came after the step was planned."""
        self.passes: int | None = None
        """Passes of the drafter that ran, where vLLM left them out; else as many as planned."""
        self.not_drafted: Container[str] = ()
        """Requests whose drafts in this step no drafter has made: placeholders and zeros."""
        self.lost: set[str] = set()
        """Requests that ended or were preempted while the step was under way: vLLM drops their
        output."""


class Arrived(msgspec.Struct, frozen=True):
    """Results of a step, with what vLLM is about to change in them.

    Attributes:
        results: vLLM's ModelRunnerOutput.
        following: the planned step that verifies the drafts which this one has made; None if none
            is under way.
        generated: tokens by row of the results, before vLLM cuts what follows a stop.
        seconds: duration of the step.
        now: time of completion.
    """

    step: PlannedStep
    results: Any
    following: PlannedStep | None
    generated: Sequence[int]
    seconds: float
    now: float


class _Rows(NamedTuple):
    """Requests that decoded in a step and have output.

    Attributes:
        names: [B] vLLM's ids.
        slots: [B].
        verified: [B] drafts that vLLM verified.
        generated: [B] tokens before vLLM cut what follows a stop.
        emitted: [B] tokens after that.
        places: [B] of the requests in vLLM's results.
        kept: of the planned requests, those among these; None where all are.
    """

    names: Sequence[str]
    slots: IntArray
    verified: Sequence[int]
    generated: Sequence[int]
    emitted: Sequence[int]
    places: Sequence[int]
    kept: Sequence[bool] | None


def build_outcome(arrived: Arrived) -> StepOutcome | None:
    """The outcome, after vLLM has processed the results; None if no request decoded in the step."""
    step = arrived.step
    output, context = step.output, step.context
    scheduled = _by_name(output.num_scheduled_tokens, context.request_ids, 0)
    batch_size = len(scheduled) - scheduled.count(0)
    if not batch_size:
        return None
    drafts = _by_name(output.scheduled_spec_decode_tokens, context.request_ids, ())
    verified = list(map(len, drafts))
    rows = _with_output(arrived, verified)
    labels = _labels(rows, step)
    pairs = zip(rows.generated, labels, strict=True)
    right = [k if count > k else count - 1 for count, k in pairs]
    k_i: IntArray = np.array(labels, dtype=np.int64)
    accepted: IntArray = np.array(right, dtype=np.int64)
    agreed = _agreed(rows, arrived, k_i, accepted)
    shown = None
    if step.late_signals is not None:
        shown = step.late_signals.rows(rows.names, context.capability.max_draft_tokens)
    confidence, entropy = shown or (None, None)
    return StepOutcome(
        step=context.step,
        slots=rows.slots,
        verified=k_i,
        accepted=accepted,
        emitted=np.array(rows.emitted, dtype=np.int64),
        batch_size=batch_size,
        batch_tokens=sum(scheduled),
        context_tokens=sum(compress(context.context_tokens.tolist(), scheduled)),
        prefill_tokens=output.total_num_scheduled_tokens - sum(scheduled),
        # A plain number, also after OFF-cold.
        draft_depth=int(output.num_spec_tokens_to_schedule) if step.passes is None else step.passes,
        ragged=len(set(compress(verified, scheduled))) > 1,
        seconds=arrived.seconds,
        now=arrived.now,
        confidence=confidence,
        entropy=entropy,
        lookup_agreed=agreed,
    )


def _with_output(arrived: Arrived, verified: Sequence[int]) -> _Rows:
    """Leave out planned requests that did not run, were preempted, or have ended since."""
    step, results = arrived.step, arrived.results
    names, slots = step.context.request_ids, step.context.slots
    places = _by_name(results.req_id_to_index, names, -1)
    generated = [*arrived.generated, 0]  # 0 at place -1: not in the results
    counts = [generated[place] for place in places]
    kept: list[bool] | None = None
    if step.lost or 0 in counts:
        kept = [bool(n) and name not in step.lost for name, n in zip(names, counts, strict=True)]
        names, verified, places, counts = (
            list(compress(column, kept)) for column in (names, verified, places, counts)
        )
        slots = slots[np.array(kept)]
    sampled = results.sampled_token_ids
    emitted = [len(sampled[place]) for place in places]
    return _Rows(names, slots, verified, counts, emitted, places, kept)


def _labels(rows: _Rows, step: PlannedStep) -> Sequence[int]:
    """[B] drafts verified that say something of the drafter."""
    verified = rows.verified
    if step.output.num_invalid_spec_tokens:  # a grammar has rejected them
        invalid = step.output.num_invalid_spec_tokens
        verified = [k - invalid.get(name, 0) for k, name in zip(verified, rows.names, strict=True)]
    if step.not_drafted:
        pairs = zip(verified, rows.names, strict=True)
        verified = [0 if name in step.not_drafted else k for k, name in pairs]
    if rows.emitted != rows.generated:  # a stop cuts off what follows
        cut = zip(verified, rows.emitted, rows.generated, strict=True)
        verified = [min(k, left) if left < count else k for k, left, count in cut]
    return verified


def _agreed(
    rows: _Rows, arrived: Arrived, verified: IntArray, accepted: IntArray
) -> IntArray | None:
    """[B] looked-up drafts that are what was emitted; count those that were not copied."""
    step, sampled = arrived.step, arrived.results.sampled_token_ids
    found, copied = step.drafts_found, step.plan.from_lookup
    if found is None:
        return None
    if rows.kept is not None:
        found = list(compress(found, rows.kept))
        copied = None if copied is None else copied[np.array(rows.kept)]
    agreed = agreement(found, [sampled[place] for place in rows.places])
    if copied is not None:
        # A copied draft that is what was emitted has been accepted.
        step.not_copied = int(np.sum(accepted[copied] < np.minimum(agreed, verified)[copied]))
    return agreed


def _by_name(table: Mapping[str, _Value], names: Sequence[str], missing: _Value) -> list[_Value]:
    """[B] values of these names; most tables have just these, in this order."""
    if [*table] == names:
        return [*table.values()]
    return [table.get(name, missing) for name in names]
