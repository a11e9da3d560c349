"""The gain that audit blocks have measured while a trace was recorded."""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.audit.auditor import ERROR
from adaptive_spec.audit.blocks import Placed
from adaptive_spec.audit.confidence_sequence import Interval, Sequence
from adaptive_spec.audit.gain import PairedDifferences
from adaptive_spec.sim.step_trace import RecordedStep


class MeasuredGain:
    """Sums over the pairs of a trace, those of several processes together.

    Steps of prompts alone are in no trace: where they are many, the server's own figure, which
    counts them, lies nearer to 0.
    """

    def __init__(self) -> None:
        self._sequence = Sequence()
        self._pairs: dict[int, PairedDifferences] = {}

    @property
    def blocks(self) -> int:
        """Blocks with the engine's own K that could be compared."""
        return self._sequence.count

    def add(self, step: RecordedStep) -> None:
        """Add a step."""
        pairs = self._pairs.setdefault(step.process, PairedDifferences())
        placed = None if step.audit is None else Placed(*step.audit)
        found = pairs.add(placed, step.outcome(step.step, np.arange(len(step.ids))))
        if found is not None and found.arm == "engine":
            self._sequence.add(found.value, found.weight)

    def ratio(self) -> Interval | None:
        """Return tokens per second over those of the engine's own K; None with too few blocks."""
        interval = self._sequence.interval(ERROR)
        return None if interval is None else Interval(*map(math.exp, interval))
