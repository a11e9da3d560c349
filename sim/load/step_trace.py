"""A load taken from a recorded step trace of a server, or of the simulator.

A step trace says which requests decoded in a step and what they emitted, not when they arrived
nor how long their prompts were. So a request

* arrives when the first step in which it decodes began, that is, after it had waited and its
  prompt had run;
* has a prompt as long as its context in that step: the step's sum of context lengths less those
  of the requests already known. Of several that begin in one step only the sum is known; it is
  shared equally among them until one leaves the batch alone and the sum falls by its context;
* emits what its steps emitted and one token more, which came out of its prompt.

Not seen at all: requests with one output token, and what was recorded in segments that rotation
has deleted. A request that was under way when the recording begins appears at its start, with
what was left of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from adaptive_spec.errors import DataError
from adaptive_spec.operation.trace import read_trace
from adaptive_spec.sim.load.records import UNKNOWN_PROMPT_TOKENS
from adaptive_spec.sim.load.request import Request

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Step(msgspec.Struct):
    step: int
    now: float
    seconds: float | None
    batch_size: _Count
    context_tokens: _Count
    ids: list[str]
    emitted: list[_Count]


@dataclass(slots=True)
class _Group:
    """Requests of whose prompts only the sum is known."""

    members: set[str]
    tokens: int


@dataclass(slots=True)
class _Seen:
    arrival: float
    emitted: int = 0
    prompt_tokens: int = 0
    """0 until a step tells."""
    group: _Group | None = None


def read_step_trace(directory: Path) -> Iterator[Request]:
    """Requests of a recorded trace in order of arrival, the first at 0.

    Holds one small entry per request: how much one emits is known when the trace has been read.
    Raises DataError naming the directory and the step, or file and line where a line is not a step
    record.
    """
    requests = _Requests()
    last = -math.inf
    steps = 0
    for record in read_trace(directory):
        step = _checked(directory, record)
        if step.now < last:
            raise DataError(
                f"{directory}, step {step.step}: time goes back by {last - step.now:g} s; keep the "
                "segments of one process in the directory"
            )
        last = step.now
        requests.take_in(step)
        steps += 1
    if not steps:
        raise DataError(f"{directory}: no step trace: no steps in any file steps-*.jsonl")
    if not requests.seen:
        raise DataError(f"{directory}: no request decodes in any of {steps} steps")
    return _in_order(requests.seen)


def _checked(directory: Path, record: dict[str, object]) -> _Step:
    try:
        step = msgspec.convert(record, _Step)
    except msgspec.ValidationError as error:
        raise DataError(f"{directory}, step {record.get('step')}: {error}") from error
    if len(step.ids) != len(step.emitted):
        raise DataError(
            f"{directory}, step {step.step}: {len(step.ids)} ids and {len(step.emitted)} emitted"
        )
    if not math.isfinite(step.now):
        raise DataError(f"{directory}, step {step.step}: `now` is not a finite number")
    return step


class _Requests:
    """What the steps so far say of each request."""

    def __init__(self) -> None:
        self.seen: dict[str, _Seen] = {}
        self._previous: set[str] | None = None
        """Requests of the step before, if it had no others."""
        self._context = 0
        """Their context lengths after it, summed."""

    def take_in(self, step: _Step) -> None:
        """One step more."""
        members = [name for name in step.ids if name]
        for name in members:
            if name not in self.seen:
                self.seen[name] = _Seen(arrival=step.now - max(step.seconds or 0.0, 0.0))
        # A request that ended meanwhile is in the sum and not among the ids: wait for another.
        complete = step.batch_size == len(members)
        if complete:
            self._leaving(set(members), step.context_tokens)
            self._joining(members, step.context_tokens)
        for name, emitted in zip(step.ids, step.emitted, strict=True):
            if name:
                self.seen[name].emitted += emitted
        self._previous = set(members) if complete else None
        self._context = step.context_tokens + sum(step.emitted)

    def _leaving(self, members: set[str], context_tokens: int) -> None:
        """Learn the prompt of a request of a group that left alone, with nobody joining."""
        left = set() if self._previous is None else self._previous - members
        if len(left) != 1 or self._previous != members | left:
            return
        (name,) = left
        request = self.seen[name]
        group = request.group
        if group is None:
            return
        prompt = self._context - context_tokens - request.emitted
        if not 1 <= prompt <= group.tokens - (len(group.members) - 1):
            return
        request.prompt_tokens, request.group = prompt, None
        group.members.remove(name)
        group.tokens -= prompt
        self._share(group)

    def _joining(self, members: list[str], context_tokens: int) -> None:
        """Give those without a prompt what the others leave of the sum."""
        unknown = [name for name in members if not self.seen[name].prompt_tokens]
        if not unknown:
            return
        known = sum(self.seen[name].prompt_tokens + self.seen[name].emitted for name in members)
        self._share(_Group(set(unknown), max(context_tokens - known, len(unknown))))

    def _share(self, group: _Group) -> None:
        """Split the sum equally, to the last token; a group of one is no group any more."""
        share, more = divmod(group.tokens, max(len(group.members), 1))
        for at, name in enumerate(sorted(group.members)):
            request = self.seen[name]
            request.prompt_tokens = share + (at < more)
            request.group = group if len(group.members) > 1 else None


def _in_order(seen: dict[str, _Seen]) -> Iterator[Request]:
    # A step's duration is measured, not derived from `now`: order by time, not appearance.
    ordered = sorted(seen.items(), key=lambda item: item[1].arrival)
    first = ordered[0][1].arrival
    for name, request in ordered:
        yield Request(
            id=name,
            arrival=request.arrival - first,
            prompt_tokens=request.prompt_tokens or UNKNOWN_PROMPT_TOKENS,
            output_tokens=request.emitted + 1,
        )
