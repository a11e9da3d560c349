"""When to run a K that a load has not been timed with.

It takes two steps: one drafts to that K, the next verifies it. The smallest K is timed in turns for
all requests and for a share of them: a batch with few drafts may cost next to nothing, and from
batches without any and full ones alone that can't be told from a jump at the first draft.

First come a few K over the whole range, for each doubling of the load; then those beside the best
one, for sizes that are nearer to each other: between them it is decided, and a curve through far
points may have the wrong slope there. Those are timed for all requests.

K = 0 for all is timed again and again where the plan is little better: contexts grow, and no other
K tells how much less they cost a step without drafts.

Where the depth is fixed, a few steps leave drafting out: what passes cost that run in every step
can't be told from the rest of the step, and OFF would look no better than K = 0. Looking up
drafts in the text runs in every step, too, and takes half a step where the batch is large.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.policies.step_time.coverage import load_bin, near_bin
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policies.step_time.untimed_depths import UntimedDepths
from adaptive_spec.step import Capability, IntArray, Level, StepContext

_PERIOD = 4
_SHARE = 4
"""Of so many requests, one drafts in a step that times few drafts."""
_ATTEMPTS = 5
_SAMPLES_BESIDE = ((2, 0.7), (5, 0.97))
"""Steps to be timed with a K next to the best, if its goodput is at least so much of the best's."""
_LITTLE_BETTER = 0.15
"""Advantage over K = 0 up to which K = 0 is timed again, ..."""
_NONE_AGAIN, _NONE_SELDOM = 64, 1024
"""... after so many steps, then twice as many, and so on."""
_WITHOUT_DRAFTING = 3
"""Steps for each doubling of the load."""
_HOPELESS_SHARE, _HOPELESS_AFTER = 0.005, 500
"""Share of a load's steps that may go into timing K that look hopeless, after so many steps."""
_MOSTLY_PROMPTS = 4
"""A step with so many times more prompt tokens than the batch could verify measures prompts."""


class CostProbes:
    """Asks for a K to be run, now and then, until every load has been timed with each."""

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._untimed = UntimedDepths(_ATTEMPTS)
        self._offered_beside: dict[tuple[int, int], int] = {}
        self._without_drafting: dict[int, int] = {}
        self._none_again: dict[int, tuple[int, int]] = {}
        self._budget: dict[int, float] = {}
        self._drafted: int | None = None
        self._drafted_beside = False
        self._times_smallest = 0

    def start_again(self) -> None:
        """Step times have changed: time everything anew."""
        self._offered_beside.clear()
        self._without_drafting.clear()
        self._none_again.clear()
        self._budget.clear()

    @property
    def pending(self) -> bool:
        """What is drafted now is to be measured, all of it."""
        return self._drafted is not None

    def drop(self) -> None:
        """Do not verify what was drafted to be measured."""
        self._drafted = None

    def to_verify(self, context: StepContext) -> IntArray | None:
        """[B] K_i to time this step with, as the step before has drafted for; None if it hasn't."""
        k, self._drafted = self._drafted, None
        if k is None or _measures_prompts(context):
            return None
        verify = np.minimum(context.draft_available, k)
        capability = context.capability
        # A penalty of ragged batches would pass for the cost of drafts.
        ragged = capability.level is not Level.UNIFORM and capability.ragged_penalty == 0.0
        # Beside the best K, a share of the requests would time another mean K than is in question.
        if ragged and k == _smallest(capability) and not self._drafted_beside:
            self._times_smallest += 1
            if self._times_smallest % 2 == 0:
                verify[np.arange(len(verify)) % _SHARE != 0] = 0
        return verify

    def to_draft(self, context: StepContext, forecast: StepForecast | None) -> int | None:
        """A K to draft to in this step, so that the next can verify it.

        Args:
            context: the step.
            forecast: of it, where step times are known: of the K that look hopeless only the
                smallest is timed at once. Its time may be a guess from steps of a much larger K,
                and nothing else would ever tell. The others wait until they cost little of what
                has run: their times may be those of other loads, long gone.
        """
        if context.step % _PERIOD or _measures_prompts(context):
            return None
        least, batch_size = _smallest(context.capability), context.batch_size
        load = load_bin(batch_size)
        budget = self._budget.get(load, -_HOPELESS_AFTER * _HOPELESS_SHARE)
        self._budget[load] = budget + _PERIOD * _HOPELESS_SHARE

        def hopeful(k: int) -> bool:
            assert forecast is not None
            timed = self._cost.timed(batch_size, k)
            if k == least or not forecast.hopeless(k, timed=timed):
                return True
            steps = forecast.seconds_of(batch_size * k, k) / forecast.best.seconds
            if timed or self._budget[load] < steps:
                return False
            self._budget[load] -= steps
            return True

        worthwhile = None if forecast is None else hopeful
        self._drafted = self._untimed.offer(self._cost, context.batch_size, worthwhile)
        self._drafted_beside = False
        if self._drafted is None and forecast is not None and forecast.best.verify.any():
            self._drafted = self._beside(forecast)
            self._drafted_beside = True
            if self._drafted is None and self._times_none_again(forecast):
                self._drafted = 0
        return self._drafted

    def leaves_drafting_out(self, context: StepContext) -> bool:
        """This step is to be timed without drafting; asked once a step."""
        capability = context.capability
        fixed = capability.level is not Level.UNIFORM and not capability.steers_depth
        if not fixed or _measures_prompts(context):
            return False
        if context.step % _PERIOD != _PERIOD // 2:  # where nothing drafted waits to be timed
            return False
        load = load_bin(context.batch_size)
        made = self._without_drafting.get(load, 0)
        if made == _WITHOUT_DRAFTING:
            return False
        self._without_drafting[load] = made + 1
        return True

    def _times_none_again(self, forecast: StepForecast) -> bool:
        context = forecast.context
        if context.lookup_available is not None:  # without the drafter copied drafts go on
            return False
        load, step = load_bin(context.batch_size), context.step
        due, period = self._none_again.setdefault(load, (step + _NONE_AGAIN, _NONE_AGAIN))
        if step < due or forecast.advantage > _LITTLE_BETTER:
            return False
        if 0 not in context.capability.uniform_values:
            return False
        period = min(2 * period, _NONE_SELDOM)
        self._none_again[load] = step + period, period
        return True

    def _beside(self, forecast: StepForecast) -> int | None:
        batch_size = forecast.context.batch_size
        load, best = near_bin(batch_size), float(forecast.best.verify.mean())
        for samples, least in _SAMPLES_BESIDE:
            for k in self._cost.missing_beside(batch_size, best, samples):
                offered = self._offered_beside.get((load, k), 0)
                if offered < samples + _ATTEMPTS and forecast.of_best(k) >= least:
                    self._offered_beside[load, k] = offered + 1
                    return k
        return None


def _smallest(capability: Capability) -> int:
    return min((k for k in capability.uniform_values if k), default=0)


def _measures_prompts(context: StepContext) -> bool:
    most_tokens = context.batch_size * (1 + context.capability.max_draft_tokens)
    return context.prefill_tokens > _MOSTLY_PROMPTS * most_tokens
