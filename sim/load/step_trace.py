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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adaptive_spec.errors import DataError
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.step_trace import RecordedStep, read_steps


@dataclass(slots=True)
class _Seen:
    arrival: float
    prompt_tokens: int
    emitted: int = 0


def read_step_trace(directory: Path) -> Iterator[Request]:
    """Yield the requests of a recorded trace in order of arrival, the first at 0.

    Holds one small entry per request: its output is known when the trace has been read. Raises
    DataError naming the directory and the step, or file and line where a line is not a step record.
    """
    seen: dict[str, _Seen] = {}
    last = -math.inf
    steps = 0
    for step in read_steps(directory):
        if step.now < last:
            raise DataError(
                f"{directory}, step {step.step}: time goes back by {last - step.now:g} s; keep the "
                "segments of one process in the directory"
            )
        last = step.now
        steps += 1
        _begin_requests(step, seen)
        for name, emitted in zip(step.ids, step.emitted, strict=True):
            if name:
                seen[name].emitted += emitted
    if not steps:
        raise DataError(f"{directory}: no step trace: no steps in any file steps-*.jsonl")
    if not seen:
        raise DataError(f"{directory}: no request decodes in any of {steps} steps")
    return _in_order(seen)


def _begin_requests(step: RecordedStep, seen: dict[str, _Seen]) -> None:
    """Add the requests whose first step this is."""
    new = [row for row, name in enumerate(step.ids) if name and name not in seen]
    if not new:
        return
    contexts = step.contexts
    if contexts is None:
        others = (seen[name] for name in step.ids if name in seen)
        left = step.context_tokens - sum(each.prompt_tokens + each.emitted for each in others)
        contexts = [max(left // len(new), 1)] * len(step.ids)
    arrival = step.now - max(step.seconds or 0.0, 0.0)
    for row in new:
        seen[step.ids[row]] = _Seen(arrival, max(contexts[row], 1))


def _in_order(seen: dict[str, _Seen]) -> Iterator[Request]:
    # A step's duration is measured, not derived from `now`: order by time, not appearance.
    ordered = sorted(seen.items(), key=lambda item: item[1].arrival)
    first = ordered[0][1].arrival
    for name, request in ordered:
        yield Request(
            id=name,
            arrival=request.arrival - first,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.emitted + 1,
        )
