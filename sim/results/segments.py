"""Recovery after each change of acceptance or load: steps and seconds to the best throughput.

A run with changes is cut into segments, one from each change to the next. A segment keeps its
tokens and seconds in blocks of steps: every step by itself at first, later blocks of a fiftieth of
the steps since the change, so that a long segment takes little room and the moment of recovery is
known to 2 %.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

WINDOW_REQUEST_STEPS = 4_000
"""Decoding requests times steps over which throughput is compared: noise of about 1 %."""
TOLERANCE = 0.03
"""Recovered: throughput is this near to the optimum's."""
_RESOLUTION = 50


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a run from a change to the next, or to its end.

    Attributes:
        at: seconds at which the change happened.
        tokens: emitted in the segment.
        seconds: its length.
        block_steps, block_requests, block_tokens, block_seconds: steps, request-steps, emitted
            tokens and seconds of its blocks, in order.
    """

    at: float
    tokens: int
    seconds: float
    block_steps: list[int]
    block_requests: list[int]
    block_tokens: list[int]
    block_seconds: list[float]

    @property
    def throughput(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Recovery of a policy after a change.

    Attributes:
        at: seconds at which the change happened.
        best_static_k: the fixed K with the highest throughput from there to the next change.
        steps: steps after the change at which the first window begins whose throughput is
            within `TOLERANCE` of that K's, as is that from there to the segment's end; None:
            there is none. A window that begins a little before the recovery passes too: up to
            TOLERANCE / loss of its length early.
        seconds: the same in simulated seconds.
        lost_seconds: time spent in the segment beyond what that K takes for as many tokens;
            negative if the policy was faster.
        of_best_static: throughput of the segment over that K's.
    """

    at: float
    best_static_k: int
    steps: int | None
    seconds: float | None
    lost_seconds: float
    of_best_static: float


class Segments:
    """Collector of the segments of a run.

    Args:
        changes: seconds at which something changes, ascending.
    """

    def __init__(self, changes: Sequence[float]) -> None:
        self._changes = list(changes)
        self._next = 0
        self._done: list[Segment] = []
        self._blocks: list[list[float]] = []
        self._steps = 0
        self._left = 0

    def step(self, now: float, seconds: float, requests: int, tokens: int) -> None:
        """Record a step that has ended now."""
        while self._next < len(self._changes) and now > self._changes[self._next]:
            self._close()
            self._next += 1
        if not self._next:
            return
        if not self._left:
            self._blocks.append([0, 0, 0, 0.0])
            self._left = max(self._steps // _RESOLUTION, 1)
        block = self._blocks[-1]
        block[0] += 1
        block[1] += requests
        block[2] += tokens
        block[3] += seconds
        self._left -= 1
        self._steps += 1

    def finished(self) -> list[Segment]:
        """All segments; none may follow."""
        self._close()
        return self._done

    def _close(self) -> None:
        if self._next:
            columns = list(zip(*self._blocks, strict=True)) or [()] * 4
            steps, requests, tokens, seconds = columns
            self._done.append(
                Segment(
                    at=self._changes[self._next - 1],
                    tokens=int(sum(tokens)),
                    seconds=sum(seconds),
                    block_steps=[int(each) for each in steps],
                    block_requests=[int(each) for each in requests],
                    block_tokens=[int(each) for each in tokens],
                    block_seconds=[round(each, 9) for each in seconds],
                )
            )
        self._blocks, self._steps, self._left = [], 0, 0


def recovery_of(segment: Segment, static: Sequence[Segment]) -> Recovery | None:
    """A policy's segment held against those of each fixed K; None where nothing was emitted.

    Args:
        segment: of the policy.
        static: [Kmax + 1] the same segment with each fixed K.
    """
    speeds = [each.throughput for each in static]
    best = max(speeds)
    if best <= 0 or not segment.tokens:
        return None
    steps, seconds = _first_window(segment, (1.0 - TOLERANCE) * best)
    return Recovery(
        at=segment.at,
        best_static_k=speeds.index(best),
        steps=steps,
        seconds=seconds,
        lost_seconds=segment.seconds - segment.tokens / best,
        of_best_static=segment.throughput / best,
    )


def _first_window(segment: Segment, speed: float) -> tuple[int | None, float | None]:
    """Steps and seconds before the first window with at least this throughput."""
    requests = [0, *itertools.accumulate(segment.block_requests)]
    tokens = [0, *itertools.accumulate(segment.block_tokens)]
    seconds = [0.0, *itertools.accumulate(segment.block_seconds)]
    steps = [0, *itertools.accumulate(segment.block_steps)]
    end = 0
    for begin in range(len(segment.block_steps)):
        while end < len(requests) - 1 and requests[end] - requests[begin] < WINDOW_REQUEST_STEPS:
            end += 1
        if requests[end] - requests[begin] < WINDOW_REQUEST_STEPS:
            break
        window = tokens[end] - tokens[begin], seconds[end] - seconds[begin]
        rest = tokens[-1] - tokens[begin], seconds[-1] - seconds[begin]
        if all(count >= speed * length for count, length in (window, rest)):
            return steps[begin], seconds[begin]
    return None, None
