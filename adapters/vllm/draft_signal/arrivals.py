"""Where the values go when they reach the scheduler: to a plan in time, or to an outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE, DraftSignals
from adaptive_spec.step import FloatArray, SpecPlan, StepContext

_PATIENCE_STEPS, _PERIOD = 64, 8


class SignalArrivals:
    """Holds the values of the drafts at hand until the step that verifies them is planned.

    Where all drafts have been verified for a while, whatever they showed, only now and then a
    round is read: there is nothing to choose.

    Attributes:
        late: rounds whose values came when that step was under way or over.
    """

    def __init__(self, kmax: int) -> None:
        self.late = 0
        self._kmax = kmax
        self._for_next_plan: DraftSignals | None = None
        self._any_arrived = False
        self._in_time = False
        self._asked_for = False
        self._all_verified = 0

    def wanted(self, context: StepContext, plan: SpecPlan) -> bool:
        """Should the drafts made at the end of this step be read?"""
        self._asked_for = self._wanted(context, plan)
        return self._asked_for

    @property
    def at_hand(self) -> bool:
        """The next plan may choose by the confidence of its drafts."""
        return self._for_next_plan is not None

    @property
    def expected(self) -> bool:
        """The drafts being made will arrive with their confidence."""
        return self._in_time and self._asked_for

    def _wanted(self, context: StepContext, plan: SpecPlan) -> bool:
        if not self._any_arrived:
            return True
        if (plan.verify < context.draft_available).any():
            self._all_verified = 0
        else:
            self._all_verified += 1
        return self._all_verified < _PATIENCE_STEPS or context.step % _PERIOD == 0

    def arrived(self, drafts: Any) -> bool:
        """Take the values off vLLM's DraftTokenIds, in time for the next plan; whether any came."""
        signals = getattr(drafts, ATTRIBUTE, None)
        if signals is None:
            return False
        self._any_arrived = self._in_time = True
        self._for_next_plan = signals
        return True

    def arrived_late(self, results: Any, done: Any, following: Any) -> None:
        """Take the values off vLLM's ModelRunnerOutput: too late for a plan.

        The step that verifies the drafts, under way or over, gets them as `late_signals`.

        Args:
            results: of a step.
            done: the planned step whose results they are.
            following: the planned step that verifies the drafts which that step has made; None if
                none is under way. Values that nobody waits for are dropped.
        """
        signals = getattr(results, ATTRIBUTE, None)
        if signals is None:
            return
        planned = done if signals.verified else following
        if planned is not None:
            self._any_arrived = True
            self.late += 1
            planned.late_signals = signals

    def for_plan(self, request_ids: Sequence[str]) -> tuple[FloatArray, FloatArray] | None:
        """Confidence and entropy, [B, Kmax] each, of the step about to be planned; used once."""
        signals, self._for_next_plan = self._for_next_plan, None
        return None if signals is None else signals.rows(request_ids, self._kmax)
