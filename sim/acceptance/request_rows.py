"""Decode steps of the requests of a trace as columns, at most so many.

A trace of days holds more requests than any result needs, and does not fit in memory as objects.
Beyond `MOST_ROWS` every other request, by order of appearance, is left out, over and over, so that
what is kept is spread evenly over the trace.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.imputation import MANY, UNKNOWN, RecordedSteps
from adaptive_spec.sim.step_trace import RecordedStep, TaskNames
from adaptive_spec.step import IntArray

MOST_ROWS = 1 << 19
"""Steps of requests that are kept."""


@dataclass
class _First:
    """Facts of a request that its first step states."""

    prompt_tokens: int
    label: str
    temperature: float


@dataclass
class RequestRows:
    """Rows of requests, in order of the trace.

    Attributes:
        found: requests seen so far.
        stride: of so many requests, one is kept.
        most_rows: steps of requests that are kept; None: as many as a prediction can use.
    """

    found: int = 0
    stride: int = 1
    most_rows: int | None = None
    _first: dict[int, _First] = field(default_factory=dict)
    _request: array[int] = field(default_factory=lambda: array("q"))
    _counts: array[int] = field(default_factory=lambda: array("B"))
    """K, accepted, emitted, values of confidence, and 1 + drafts found of each row."""
    _signal: array[float] = field(default_factory=lambda: array("f"))
    _names: TaskNames = field(default_factory=TaskNames)
    _looks_up: bool = False
    """The drafter looks text up, and may find nothing."""
    _step: RecordedStep | None = None
    _asked: int = 0
    """Drafts that the drafter was asked for before this step."""

    def add(self, step: RecordedStep) -> None:
        """Add a step's rows of requests with an id."""
        if all(request < 0 for request in step.requests):
            return
        self._names.read(step)
        if step.capability is not None:
            self._looks_up = not step.capability.off_pass
        before, self._step = self._step, step
        self._asked = 0 if before is None or before.process != step.process else before.depth
        for row, request in enumerate(step.requests):
            if request >= 0:
                self._add(request, step, row)

    def _add(self, request: int, step: RecordedStep, row: int) -> None:
        self.found = max(self.found, request + 1)
        emitted = step.emitted[row]
        if request % self.stride or not emitted:
            return
        if request not in self._first:
            mean = step.context_tokens // max(step.batch_size, 1)
            self._first[request] = _First(
                prompt_tokens=max(mean if step.contexts is None else step.contexts[row], 1),
                label=self._names.of(step, row),
                temperature=0.0 if step.temperature is None else step.temperature[row],
            )
        signal = step.late_confidence if step.confidence is None else step.confidence
        shown = [] if signal is None else signal[row]
        self._request.append(request)
        proposed = self._proposed(step, row)
        self._counts.extend((step.k[row], step.accepted[row], emitted, len(shown), 1 + proposed))
        self._signal.extend(np.nan if value is None else value for value in shown)
        if len(self._request) > (self.most_rows or MOST_ROWS):
            self._thin()

    def _proposed(self, step: RecordedStep, row: int) -> int:
        """Return the drafts that were found, `UNKNOWN` or `MANY`."""
        if not self._looks_up or step.available is None or step.possible is None:
            return UNKNOWN
        if step.planned_k is not None and step.k[row] < step.planned_k[row]:
            return step.k[row]  # planned before they were looked up
        if not self._asked:
            return UNKNOWN
        available = step.available[row]
        # With so many drafts it is the step that limits them, or the request's end.
        return available if available < min(self._asked, step.possible[row]) else MANY

    def _thin(self) -> None:
        """Leave out every other request."""
        self.stride *= 2
        request = np.array(self._request)
        kept = request % self.stride == 0
        counts = np.array(self._counts).reshape(-1, 5)
        signal = np.array(self._signal)[np.repeat(kept, counts[:, 3])]
        self._request = array("q", request[kept].tobytes())
        self._counts = array("B", counts[kept].tobytes())
        self._signal = array("f", signal.tobytes())
        self._first = {
            number: known for number, known in self._first.items() if not number % self.stride
        }

    @property
    def first(self) -> list[_First]:
        """Facts of each kept request."""
        return [known for _, known in sorted(self._first.items())]

    def steps(self, source: str) -> RecordedSteps:
        """Return the steps by request, in order of first appearance.

        Raises DataError naming the source where there are none, or a confidence leaves 0..1.
        """
        request = np.frombuffer(self._request, dtype=np.int64)
        if not len(request):
            raise DataError(f"{source}: no decode steps in this trace")
        counts = np.frombuffer(self._counts, dtype=np.uint8).reshape(-1, 5)
        order = np.argsort(request, kind="stable")
        # A request that has emitted has a first step, and numbers ascend.
        per_request = np.bincount(request)
        offsets = np.concatenate([[0], np.cumsum(per_request[per_request > 0])])
        verified, accepted, emitted = counts[order, :3].T.astype(np.int64)
        return RecordedSteps(
            verified=verified,
            accepted=accepted,
            emitted=emitted,
            offsets=offsets.astype(np.int64),
            confidence=self._confidence(source, counts[:, 3], order),
            proposed=counts[order, 4].astype(np.int64) - 1 if self._looks_up else None,
        )

    def _confidence(
        self, source: str, widths: NDArray[np.uint8], order: IntArray
    ) -> NDArray[np.float32] | None:
        """[S, D] confidence of all steps, nan where a step has none; None if none has."""
        width = int(widths.max())
        if not width:
            return None
        signal = np.frombuffer(self._signal, dtype=np.float32)
        if bool(((signal < 0) | (signal > 1)).any()):
            raise DataError(f"{source}: a confidence leaves 0..1")
        padded = np.full((len(widths), width), np.nan, dtype=np.float32)
        padded[np.arange(width) < widths[:, None]] = signal
        return padded[order]
