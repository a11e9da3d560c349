"""Forecast of the coming step: survival, step times and the best plan, from finished rounds."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.per_request import sum_of
from adaptive_spec.policies.planning.planner import Admission, Ahead, is_ragged, plan_step, value_of
from adaptive_spec.policies.planning.shared_k import plan_with_shared_k
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policies.switch.break_even import Prospect, prospect
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, Mode, SpecPlan, StepContext


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
    costs = verify_seconds, draft_seconds
    if ahead is None and capability.level is not Level.UNIFORM and capability.ragged_penalty <= 0.0:
        planned = plan_step(context, survival, *costs)
    else:
        planned = plan_with_shared_k(context, survival, *costs, ahead)
    return StepForecast(
        context,
        survival,
        planned.weights,
        verify_seconds,
        draft_seconds,
        cost.prefill_seconds(context.prefill_tokens),
        planned.best,
        planned.tokens,
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
    step_times: CostModel | None = None
    """Asked by `OffForecast` for what is uncertain; None where nobody does."""

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

    def predicted_plan(
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


def verify_prices(forecast: StepForecast) -> FloatArray:
    """Return the survival at which a draft pays, by position [Kmax], not falling.

    Of a single request the position is the number of drafts, so that each has a price of its
    own, where a kernel or a captured size makes one dearer than the next. The first counts as
    the second, and what rises less than before is taken together (the greatest convex curve
    below the step times), since nobody stops where going on is cheaper.
    """
    kmax = len(forecast.survival)
    if forecast.context.batch_size > 1 or kmax < 2:
        return np.full(kmax, verify_price(forecast))
    slopes = convex_slopes(forecast.verify_seconds[1:])
    return forecast.best.goodput * np.concatenate((slopes[:1], slopes))


def convex_slopes(curve: FloatArray) -> FloatArray:
    """Slopes [N - 1], not falling, of the greatest convex function below these N values."""
    corners = [0]
    for here in range(1, len(curve)):
        while len(corners) > 1:
            first, second = corners[-2], corners[-1]
            before = (curve[second] - curve[first]) / (second - first)
            if (curve[here] - curve[second]) / (here - second) > before:
                break
            corners.pop()
        corners.append(here)
    widths = np.diff(corners)
    slopes: FloatArray = np.repeat(np.diff(curve[corners]) / widths, widths)
    return slopes


class OffForecast(NamedTuple):
    """A step without speculation, and speculation compared with it; computed when read."""

    step: StepForecast

    @property
    def _step_times(self) -> CostModel:
        assert self.step.step_times is not None
        return self.step.step_times

    @property
    def off_seconds(self) -> float:
        """Duration, without prompts, of a step at the cheapest K = 0 of this engine."""
        cold = self.step.context.capability.cold_off
        return self.step.seconds_of(0, 0, Mode.OFF_COLD if cold else Mode.OFF_WARM)

    @property
    def warm_seconds(self) -> float:
        """Seconds added by the pass that keeps the drafter's state current."""
        return self.step.seconds_of(0, 0, Mode.OFF_WARM) - self.off_seconds

    @property
    def advantage(self) -> float:
        """Goodput of the best plan over that of the cheapest K = 0, minus 1."""
        off = self.step.context.batch_size / self.off_seconds
        return self.step.counted(self.step.best_tokens) / self.step.best.seconds / off - 1.0

    def prospect(self) -> Prospect:
        """Gain and break-even of speculation at this load, were first drafts accepted often."""
        number = self.step.taking_part
        mean = self.step.counted_survival.mean(axis=1)
        draft_seconds = self.step.draft_seconds
        if not self.step.context.capability.steers_depth:
            draft_seconds = np.full_like(draft_seconds, draft_seconds[-1])
        return prospect(
            number,
            self.step.verify_seconds[: number * len(mean) + 1],
            draft_seconds,
            self.off_seconds,
            mean[1:] / mean[:-1],
        )

    def best_uniform(self) -> tuple[int, float]:
        """Return the best K >= 1 for all requests, and its goodput over that of no speculation."""
        number, most = self.step.taking_part, len(self.step.verify_seconds) - 1
        tokens = 1.0 + np.cumsum(self.step.counted_survival.mean(axis=1))
        pace = {
            k: float(tokens[k - 1]) / self.step.seconds_of(min(k * number, most), k)
            for k in self.step.context.capability.uniform_values
            if k
        }
        best = max(pace, key=lambda k: pace[k])
        return best, pace[best] * self.off_seconds

    def log_gain_of_none(self) -> tuple[float, float]:
        """Return ln goodput of no speculation over that of the best K >= 1, and its standard error.

        The error is that of the step times.
        """
        context, capability = self.step.context, self.step.context.capability
        k, of_none = self.best_uniform()
        seconds, errors, _ = self._step_times.goodput_covariance(
            context.batch_size,
            int(context.context_tokens.sum()),
            [0, k * self.step.taking_part],
            [
                -1 if capability.cold_off else 0,
                k if capability.steers_depth else capability.max_draft_tokens,
            ],
        )
        part = seconds / (seconds + context.shared_seconds)
        none, best = part * np.sqrt(np.diag(errors))
        variance = none * none + best * best - 2.0 * part[0] * part[1] * errors[0, 1]
        return -math.log(of_none), math.sqrt(max(float(variance), 0.0))

    @property
    def timed_drafts(self) -> int:
        """Steps with drafts that were timed at this load."""
        return self._step_times.timed_drafts(self.step.context.batch_size)

    @property
    def drafted_slots(self) -> IntArray:
        """Slots of the requests that may verify drafts."""
        slots: IntArray = self.step.context.slots[self.step.context.draft_possible > 0]
        return slots

    def saved_seconds(self, batch_sizes: list[int]) -> FloatArray:
        """Seconds that the best K >= 1 saves of a step without drafts, per token of a request.

        Args:
            batch_sizes: [N] of requests such as those of this step.

        Returns [N], at least 0.
        """
        each = int(self.step.context.context_tokens.mean())
        tokens = 1.0 + np.cumsum(self.step.counted_survival.mean(axis=1))
        k = np.arange(1, len(tokens) + 1)
        saved = np.zeros(len(batch_sizes))
        for n, batch in enumerate(batch_sizes):
            verify = self._step_times.verify_seconds(batch, batch * each, 0)
            drafting = self._step_times.draft_seconds(batch)
            passes = drafting[k] if self.step.context.capability.steers_depth else drafting[-1]
            saved[n] = verify[0] - np.min((verify[batch * k] + passes) / tokens)
        return np.maximum(saved, 0.0)
