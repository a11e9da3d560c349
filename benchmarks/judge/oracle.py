"""A policy that sees the script: the best K of each request for this step alone.

It knows which drafts are right, now and where this step will end, and the true times. It maximises
the tokens per second of each step, not of the run, keeps the drafter in step all the time, and so
is no bound where no draft pays, or where OFF-cold does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.oracle import StepOracle
from adaptive_spec.step import BoolArray, IntArray, SpecPlan, StepContext

from .clock import Recorder
from .script import Text

ORACLE = "oracle"


class OraclePolicy(StepOracle):
    """Plans with the script of the engine that it was shown."""

    name: ClassVar[str] = ORACLE
    summary: ClassVar[str] = "sees the script (benchmarks only)"

    def __init__(self, options: msgspec.Struct, *, seed: int = 0) -> None:
        self._texts: Mapping[str, Text] = {}
        self._recorder: Recorder | None = None

    def show(self, texts: Mapping[str, Text], recorder: Recorder) -> None:
        """Let it look into an engine's script and clock."""
        self._texts, self._recorder = texts, recorder

    def plan(self, context: StepContext) -> SpecPlan:
        """Plan with the times of the device that the engine is on now."""
        assert self._recorder is not None
        assert self._recorder.charge is not None
        self.step_time = self._recorder.charge.step_time
        return super().plan(context)

    def here(self, context: StepContext) -> tuple[IntArray, IntArray, BoolArray | None]:
        """Look at the next lines of the script."""
        texts = (self._texts.get(name) for name in context.request_ids)
        right = [text.right if text else 0 for text in texts]
        return np.array(right, dtype=np.int64), context.draft_available, None

    def there(self, context: StepContext, accepted: IntArray) -> tuple[IntArray, IntArray]:
        """Look at the lines where this step will end."""
        right = []
        for name, more in zip(context.request_ids, accepted.tolist(), strict=True):
            text = self._texts.get(name)
            place = (text.place + more + 1) % text.lines.size if text else 0
            right.append(text.lines.right[place] if text else 0)
        kmax = context.capability.max_draft_tokens
        return np.minimum(np.array(right, dtype=np.int64), kmax), context.draft_possible
