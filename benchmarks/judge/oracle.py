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

from adaptive_spec.policies.planning.planner import Admission
from adaptive_spec.policies.planning.shared_k import best_admission
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.oracle import true_seconds
from adaptive_spec.step import IntArray, Mode, SpecPlan, StepContext

from .clock import Recorder
from .script import Text

ORACLE = "oracle"


class _Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No options."""


class OraclePolicy(StatelessPolicy):
    """Plans with the script of the engine that it was shown."""

    name: ClassVar[str] = ORACLE
    summary: ClassVar[str] = "sees the script (benchmarks only)"
    Options: ClassVar[type[msgspec.Struct]] = _Nothing

    def __init__(self, options: _Nothing, *, seed: int = 0) -> None:
        self._texts: Mapping[str, Text] = {}
        self._recorder: Recorder | None = None

    def show(self, texts: Mapping[str, Text], recorder: Recorder) -> None:
        """Let it look into an engine's script and clock."""
        self._texts, self._recorder = texts, recorder

    def plan(self, context: StepContext) -> SpecPlan:
        """K_i from what is right here, depth from what is right where this step will end."""
        kmax = context.capability.max_draft_tokens
        if context.batch_size == 0:
            none: IntArray = np.zeros(0, dtype=np.int64)
            return SpecPlan(
                step=context.step, verify=none, draft_depth=kmax, mode=Mode.ON, reason="prompts"
            )
        texts = [self._texts.get(name) for name in context.request_ids]
        right: IntArray = np.array([text.right if text else 0 for text in texts], dtype=np.int64)
        now = self._best(context, right, context.draft_available)
        accepted = np.minimum(right, now.verify).tolist()
        there: IntArray = np.array(
            [
                min(text.lines.right[(text.place + more + 1) % text.lines.size], kmax)
                if text
                else 0
                for text, more in zip(texts, accepted, strict=True)
            ],
            dtype=np.int64,
        )
        next_ = self._best(context, there, context.draft_possible)
        return SpecPlan(
            step=context.step,
            verify=now.verify,
            draft_depth=next_.draft_depth,
            mode=Mode.ON,
            reason="sees the script",
        )

    def _best(self, context: StepContext, right: IntArray, limit: IntArray) -> Admission:
        assert self._recorder is not None
        charge = self._recorder.charge
        assert charge is not None
        step_time: StepTime = charge.step_time
        kmax = context.capability.max_draft_tokens
        survival = (np.arange(kmax)[:, None] < right).astype(np.float64)
        return best_admission(
            survival,
            np.ones(context.batch_size),
            limit,
            limit,
            *true_seconds(step_time, context),
            context.capability,
        )
