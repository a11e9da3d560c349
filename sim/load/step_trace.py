"""A load taken from a recorded step trace of a server, or of the simulator.

A step trace records decode steps, not arrivals. So a request

* arrives when the first step in which it decodes began, after it had waited and its prompt had run;
* has a prompt as long as its context in that step. Traces of older versions have only the sum over
  the batch: requests that begin together share equally what the others leave of it;
* emits what its steps emitted and one token more, which came out of its prompt.

Requests with one output token, and what was recorded in segments that rotation has deleted, are
missing. A request that was under way when the recording began appears at its start, with what was
left of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adaptive_spec.errors import DataError
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.step_trace import RecordedStep, find_trace


@dataclass(slots=True)
class _Seen:
    name: str
    arrival: float
    prompt_tokens: int
    emitted: int = 0


def read_step_trace(directory: Path) -> Iterator[Request]:
    """Yield the requests of a recorded trace in order of arrival, the first at 0.

    Holds one small entry per request: its output is known when the trace has been read. Raises
    DataError naming the directory and the step, or file and line where a line is not a step record.
    """
    trace = find_trace(directory)
    seen: dict[int, _Seen] = {}
    last = -math.inf
    steps = 0
    for step in trace.steps():
        if step.now < last:
            raise DataError(
                f"{directory}, step {step.step}: time goes back by {last - step.now:g} s; keep the "
                "segments of one process in the directory"
            )
        last = step.now
        steps += 1
        _begin_requests(step, seen)
        for number, emitted in zip(step.requests, step.emitted, strict=True):
            if number >= 0:
                seen[number].emitted += emitted
    if not steps:
        raise DataError(f"{directory}: no step trace: no steps in any file steps-*.jsonl")
    if not seen:
        raise DataError(f"{directory}: no request decodes in any of {steps} steps")
    return _in_order(seen)


def _begin_requests(step: RecordedStep, seen: dict[int, _Seen]) -> None:
    """Add the requests whose first step this is."""
    new = [row for row, number in enumerate(step.requests) if number >= 0 and number not in seen]
    if not new:
        return
    contexts = step.contexts
    if contexts is None:
        others = (seen[number] for number in step.requests if number in seen)
        left = step.context_tokens - sum(each.prompt_tokens + each.emitted for each in others)
        contexts = [max(left // len(new), 1)] * len(step.ids)
    arrival = step.now - max(step.seconds or 0.0, 0.0)
    for row in new:
        seen[step.requests[row]] = _Seen(step.ids[row], arrival, max(contexts[row], 1))


def _in_order(seen: dict[int, _Seen]) -> Iterator[Request]:
    # A step's duration is measured, not derived from `now`: order by time, not appearance.
    ordered = sorted(seen.values(), key=lambda request: request.arrival)
    first = ordered[0].arrival
    times = Counter[str]()
    for request in ordered:
        times[request.name] += 1
        used = times[request.name]
        yield Request(
            id=request.name if used == 1 else f"{request.name} ({used})",
            arrival=request.arrival - first,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.emitted + 1,
        )
