"""Forecast of the coming step: survival, step times and the best plan, from finished rounds."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.per_request import sum_of
from adaptive_spec.policies.planning.draft_kernels import value_of
from adaptive_spec.policies.planning.planner import Admission, Ahead, is_ragged, plan_step
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import Capability, FloatArray, IntArray, Mode, SpecPlan, StepContext


def forecast_step(
    context: StepContext,
    survival: FloatArray,
    cost: CostModel,
    ahead: Ahead | None = None,
    *,
    drafter: bool = True,
) -> StepForecast:
    """Forecast a step from finished steps, and plan it.

    Args:
        context: the step.
        survival: [Kmax, B] s_ij.
        cost: step times.
        ahead: what D is chosen by; None: `survival`, as drafts are alike from step to step.
        drafter: the drafter's pass runs.
    """
    # Prompts in the step are left out: their time is due whatever K is, and counted in a ratio of
    # this step alone it would make drafts look cheap.
    total_context = sum_of(context.context_tokens)
    verify_seconds = cost.verify_seconds(context.batch_size, total_context, 0)
    if context.shared_seconds:
        verify_seconds = verify_seconds + context.shared_seconds
    draft_seconds = cost.draft_seconds(context.batch_size)
    if not drafter:
        draft_seconds = np.zeros_like(draft_seconds)
    capability = context.capability
    if capability.ragged_penalty != cost.ragged_penalty:
        capability = _with_penalty(capability, cost.ragged_penalty)
        context = msgspec.structs.replace(context, capability=capability)
    best, weights, tokens = plan_step(context, survival, verify_seconds, draft_seconds, ahead)
    return StepForecast(
        context,
        survival,
        weights,
        verify_seconds,
        draft_seconds,
        cost.prefill_seconds(context.prefill_tokens),
        best,
        tokens,
        cost,
    )


@lru_cache(maxsize=64)
def _with_penalty(capability: Capability, penalty: float) -> Capability:
    """The capability with the ragged penalty that was learned."""
    return msgspec.structs.replace(capability, ragged_penalty=penalty)


class StepForecast(NamedTuple):
    """Expected tokens and duration of a step under every plan.

    Tokens of requests that have opted out of speculation are emitted whatever the plan is, one in
    each step. They count in predictions, and not in the choice of the plan: they would vote for the
    shortest step, which is one without drafts.
    """

    context: StepContext
    survival: FloatArray
    """[Kmax, B]"""
    weights: FloatArray | None
    """[B] weight of each request's tokens, 0 for one that has opted out; None: all alike."""
    verify_seconds: FloatArray
    """[B * Kmax + 1], with the other work that a step costs (`StepContext.shared_seconds`)"""
    draft_seconds: FloatArray
    """[Kmax + 1]"""
    prefill_seconds: float
    """Time of the prompts that share the step; not part of the other times."""
    best: Admission
    best_tokens: float
    """Tokens that the best plan is expected to emit, each counted as one."""
    step_times: CostModel

    def seconds_of(
        self, drafts: int, depth: int, mode: Mode = Mode.ON, *, ragged: bool = False
    ) -> float:
        """Predicted duration, without prompts, at this many verified drafts and this depth."""
        capability = self.context.capability
        verify_seconds = float(self.verify_seconds[drafts])
        if ragged:
            verify_seconds *= 1.0 + capability.ragged_penalty
        if mode is Mode.OFF_COLD:
            return verify_seconds
        if mode is Mode.OFF_WARM and depth == 0:  # nothing is drafted: the state is kept, at most
            return verify_seconds + float(self.draft_seconds[0])
        return verify_seconds + self.drafting_seconds(depth)

    def drafting_seconds(self, depth: int) -> float:
        """Return the seconds of the drafter's passes to this depth."""
        capability = self.context.capability
        steers = capability.steers_depth
        return float(self.draft_seconds[depth if steers else capability.max_draft_tokens])

    @property
    def taking_part(self) -> int:
        """Requests, 1 to B, whose tokens count."""
        rows = self.context.taking_part
        return self.context.batch_size if rows is None else int(np.count_nonzero(rows))

    def counted(self, tokens: float) -> float:
        """Return a step's tokens as if each of the B requests emitted as many as those that count.

        Args:
            tokens: that the step emits, in all.
        """
        batch, number = self.context.batch_size, self.taking_part
        return tokens if number == batch else (tokens - (batch - number)) * batch / number

    @property
    def counted_survival(self) -> FloatArray:
        """[Kmax, N] survival of the N requests whose tokens count."""
        rows = self.context.taking_part
        return self.survival if rows is None else self.survival[:, rows]

    def tokens_of(self, verify: IntArray) -> float:
        """Tokens [B] requests are expected to emit with these K_i."""
        return self.context.batch_size + value_of(self.survival, verify)

    @property
    def _besides(self) -> float:
        """Predicted duration of a step, minus the seconds by which plans are compared."""
        return self.prefill_seconds - self.context.shared_seconds

    def compared_seconds(self, plan: SpecPlan) -> float:
        """Seconds by which a plan is compared with others: no prompts, with other work."""
        return plan.predicted_seconds - self._besides

    def plan(
        self,
        verify: IntArray,
        depth: int,
        mode: Mode,
        reason: str,
        propensity: FloatArray | None = None,
        *,
        tokens: float | None = None,
        measures: bool = False,
    ) -> SpecPlan:
        """Return a plan with its prediction; `tokens` replaces the forecast's expected tokens."""
        best = self.best
        if verify is best.verify and depth == best.draft_depth and mode is Mode.ON:
            seconds = best.seconds
        else:
            seconds = self.seconds_of(int(verify.sum()), depth, mode, ragged=is_ragged(verify))
        if tokens is None:
            tokens = self.best_tokens if verify is best.verify else self.tokens_of(verify)
        return SpecPlan(
            step=self.context.step,
            verify=verify,
            draft_depth=depth,
            mode=mode,
            reason=reason,
            measures=measures,
            propensity=propensity,
            predicted_tokens=tokens,
            predicted_seconds=seconds + self._besides,
        )
