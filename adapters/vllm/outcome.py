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
from typing import Any, TypeVar

import msgspec
import numpy as np

from adaptive_spec.adapters.vllm.copied_drafts import Copied
from adaptive_spec.adapters.vllm.draft_signal.values import DraftSignals, Wanted
from adaptive_spec.adapters.vllm.lookup import LookedUp, agreement
from adaptive_spec.engines.driver import Step
from adaptive_spec.step import SpecPlan, StepContext, StepOutcome

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


def build_outcome(arrived: Arrived) -> StepOutcome | None:
    """The outcome, after vLLM has processed the results; None if no request decoded in the step."""
    step, results = arrived.step, arrived.results
    output, context = step.output, step.context
    names = context.request_ids
    tokens = _by_name(output.num_scheduled_tokens, names, 0)
    verified = list(map(len, _by_name(output.scheduled_spec_decode_tokens, names, ())))
    batch_size = len(names) - tokens.count(0)
    if not batch_size:
        return None
    context_tokens = sum(compress(context.context_tokens.tolist(), tokens))
    ragged = len(set(compress(verified, tokens))) > 1
    places = _by_name(results.req_id_to_index, names, -1)
    generated = [*arrived.generated, 0]  # 0 at place -1: not in the results
    counts = [generated[place] for place in places]
    slots, found, taken = context.slots, step.drafts_found, step.plan.from_lookup
    if step.lost or 0 in counts:
        kept = [bool(n) and name not in step.lost for name, n in zip(names, counts, strict=True)]
        names, verified, places, counts = (
            list(compress(column, kept)) for column in (names, verified, places, counts)
        )
        mask = np.array(kept)
        slots = slots[mask]
        found = None if found is None else list(compress(found, kept))
        taken = None if taken is None else taken[mask]
    if output.num_invalid_spec_tokens:
        invalid = output.num_invalid_spec_tokens
        verified = [k - invalid.get(name, 0) for k, name in zip(verified, names, strict=True)]
    sampled = results.sampled_token_ids
    agreed = None
    if found is not None:
        agreed = agreement(found, [sampled[place] for place in places])
    sent = [len(sampled[place]) for place in places]
    if step.not_drafted:
        verified = [
            0 if name in step.not_drafted else k for k, name in zip(verified, names, strict=True)
        ]
    if sent != counts:  # a stop cuts off what follows
        cut = zip(verified, sent, counts, strict=True)
        verified = [min(k, left) if left < count else k for k, left, count in cut]
    right = [k if count > k else count - 1 for count, k in zip(counts, verified, strict=True)]
    k_i, accepted, emitted = (
        np.array(column, dtype=np.int64) for column in (verified, right, sent)
    )
    if agreed is not None and taken is not None:
        # A copied draft that is what was emitted has been accepted.
        step.not_copied = int(np.sum(accepted[taken] < np.minimum(agreed, k_i)[taken]))
    shown = None
    if step.late_signals is not None:
        shown = step.late_signals.rows(names, context.capability.max_draft_tokens)
    return StepOutcome(
        step=context.step,
        slots=slots,
        verified=k_i,
        accepted=accepted,
        emitted=emitted,
        batch_size=batch_size,
        batch_tokens=sum(tokens),
        context_tokens=context_tokens,
        prefill_tokens=output.total_num_scheduled_tokens - sum(tokens),
        # A plain number, also after OFF-cold.
        draft_depth=int(output.num_spec_tokens_to_schedule) if step.passes is None else step.passes,
        ragged=ragged,
        seconds=arrived.seconds,
        now=arrived.now,
        confidence=None if shown is None else shown[0],
        entropy=None if shown is None else shown[1],
        lookup_agreed=agreed,
    )


def _by_name(table: Mapping[str, _Value], names: Sequence[str], missing: _Value) -> list[_Value]:
    """[B] values of these names; most tables have just these, in this order."""
    if [*table] == names:
        return [*table.values()]
    return [table.get(name, missing) for name in names]
