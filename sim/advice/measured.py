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
    """Differences of the pairs of a trace, those of several processes together.

    Steps of prompts alone are in no trace: where they are many, the server's own figure, which
    counts them, lies nearer to 0.

    Attributes:
        sequence: of the differences from the engine's own K.
    """

    def __init__(self) -> None:
        self.sequence = Sequence()
        self._pairs: dict[int, PairedDifferences] = {}

    def add(self, step: RecordedStep) -> None:
        """Add a step."""
        pairs = self._pairs.setdefault(step.process, PairedDifferences())
        placed = None if step.audit is None else Placed(*step.audit)
        found = pairs.add(placed, step.outcome(step.step, np.arange(len(step.ids))))
        if found is not None and found.arm == "engine":
            self.sequence.add(found.value, found.weight)


def ratio(sequence: Sequence) -> Interval | None:
    """Return tokens per second over those of the engine's own K; None with too few blocks."""
    interval = sequence.interval(ERROR)
    return None if interval is None else Interval(*map(math.exp, interval))
