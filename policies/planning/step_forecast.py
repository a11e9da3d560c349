"""Forecast of the coming step: survival, step times and the best plan, from finished rounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adaptive_spec.policies.planning.planner import (
    NOTHING_AHEAD,
    Admission,
    Ahead,
    best_plan,
    counted_rows,
    engine_of,
    is_ragged,
)
from adaptive_spec.policies.planning.search import value_of
from adaptive_spec.step import FloatArray, IntArray, Mode, SpecPlan, StepContext


def forecast_step(
    context: StepContext,
    survival: FloatArray,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    prefill_seconds: float = 0.0,
    ahead: Ahead | None = None,
) -> StepForecast:
    """Plan a step by what is expected of it.

    Args:
        context: the step; its capability has the ragged penalty that was learned.
        survival: [Kmax, B] s_ij.
        verify_seconds: [B * Kmax + 1] with the other work of a step, without its prompts. Their
            time is due whatever K is, and counted in a ratio of this step alone it would make
            drafts look cheap.
        draft_seconds: [Kmax + 1]
        prefill_seconds: of the prompts in the step.
        ahead: what D is chosen by; None: `survival`, as drafts are alike from step to step.
    """
    weights: FloatArray = np.empty(context.batch_size)
    verify, depth, value, seconds, tokens, by_worth = best_plan(
        survival,
        context.draft_possible,
        context.draft_available,
        verify_seconds,
        draft_seconds,
        *engine_of(context.capability),
        *(NOTHING_AHEAD if ahead is None else ahead),
        counted_rows(context),
        weights,
    )
    best = Admission(verify, int(depth), float(value), float(seconds))
    weighed = weights if by_worth or context.taking_part is not None else None
    costs = verify_seconds, draft_seconds, prefill_seconds
    return StepForecast(context, survival, weighed, *costs, best, float(tokens))


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
    def off_seconds(self) -> float:
        """Duration, without prompts, of a step at the cheapest K = 0 of this engine."""
        cold = self.context.capability.cold_off
        return self.seconds_of(0, 0, Mode.OFF_COLD if cold else Mode.OFF_WARM)

    @property
    def of_none(self) -> float:
        """Goodput of the best plan over that of the cheapest K = 0."""
        off = self.context.batch_size / self.off_seconds
        return self.counted(self.best_tokens) / self.best.seconds / off

    def paces(self) -> dict[int, float]:
        """Return by K for all requests the tokens per second of each of those that count."""
        number, most = self.taking_part, len(self.verify_seconds) - 1
        tokens = np.append(1.0, 1.0 + np.cumsum(self.counted_survival.mean(axis=1)))
        return {
            k: float(tokens[k]) / self.seconds_of(min(k * number, most), k)
            for k in self.context.capability.uniform_values
        }

    def best_uniform(self) -> tuple[int, float]:
        """Return the best K >= 1 for all requests, and its goodput over that of no speculation."""
        pace, k = max((pace, -k) for k, pace in self.paces().items() if k)
        return -k, pace * self.off_seconds

    def predicted_plan(
        self,
        verify: IntArray,
        depth: int,
        mode: Mode,
        reason: str,
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
            predicted_tokens=tokens,
            predicted_seconds=seconds + self.prefill_seconds - self.context.shared_seconds,
        )


def verify_price(forecast: StepForecast) -> float:
    """Goodput times the verify time of one draft more: the survival at which it pays."""
    drafts = int(forecast.best.verify.sum())
    most = len(forecast.verify_seconds) - 1
    around = max(drafts // 2, forecast.context.batch_size // 4, 1)
    # From 1 on: that the first draft is dear is no reason against the others.
    low = max(drafts - around, 1)
    high = min(max(drafts + around, low + 1), most)
    if high <= low:
        return 0.0
    slope = float(forecast.verify_seconds[high] - forecast.verify_seconds[low]) / (high - low)
    return forecast.best.goodput * slope
