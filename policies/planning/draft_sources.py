"""Choice between two sources of drafts, by request: the drafter, or a look-up in earlier text.

At the price p of a verified draft, in tokens, drafts of one source are worth

    sum over j <= K of max(s_j - p, 0)

with K the drafts that source has ready and s_j their survival. A request takes the look-up's where
these are worth more. Hazards of both sources come from finished rounds, p from the plan of the step
before, and a match from emitted text, so that the choice depends on no draft of the round: outputs
keep their distribution.

The drafter's next drafts are worth less to a request that goes on copying. Where all looked-up
drafts are right, we expect the request to go on copying. If all requests do, the drafter is
skipped.

**The drafter's pass is left out** when look-ups find what the requests need. A drafter with a state
runs a pass in every step, also where all requests verify looked-up drafts. Each finished step
counts how long it took with both sources, and how long the look-up alone would have taken for the
same tokens, in steps without a drafter's pass. Let c be the time of drafting over that of
verification, d the accepted drafts that the drafter's hazards predict for the verified drafts, g
the same for all looked-up drafts, and l the mean of g over steps that verify the drafter's drafts.

| the request verified | with both | by the look-up alone |
| --- | --- | --- |
| looked-up drafts | 1 + c | 1 |
| the drafter's | 1 + c | 1 + (d - g) / (1 + l) |

Predicted numbers of accepted drafts vary by a third as much from step to step as observed ones, and
a look-up may be predicted to do better than the drafter that was chosen over it, but an observed
look-up ends where the emitted tokens end.

Sums over a request's last steps, with those of all requests as a prior, tell which is faster. A
request whose last tokens were found as a long match reads known text: a prompt that was asked
before, a file that it quotes. It has the sums of such requests as its prior, and where these are
known it may lose the drafter at once, but for one request in some, which tries the drafter. So may
a request of new text where requests are so much alike that a trial of n steps is not worth its
cost: ln(with both / by the look-up alone) of requests has mean m and standard deviation s, a
request has L steps, and L s u(m / s) < n m, with u as in `adaptive_spec.policies.planning.trials`.
The drafter cannot continue text it has not seen, so requests of a step without its pass are without
its drafts to their end. The pass is left out only where every decoding request is faster alone, and
no prompt is due. The hazards come from finished steps, so outputs keep their distribution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.per_request import floats, integers
from adaptive_spec.policies.acceptance.hazard_model import survival_of
from adaptive_spec.policies.acceptance.lookup_model import LookupModel
from adaptive_spec.policies.planning.planner import Ahead
from adaptive_spec.policies.planning.step_forecast import StepForecast, verify_price
from adaptive_spec.policies.planning.trials import unit_loss
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import BoolArray, FinishedStep, FloatArray, IntArray, Level, StepContext

_KEPT = 0.95
"""Share of a request's sums that a step leaves: requests change."""
_KEPT_OF_ALL = 0.998
"""Share of the sums over all requests that a request's step leaves."""
_LEAST_STEPS = 8
"""Steps with the drafter before a request may lose it."""
# Without it, stretches that copy by chance cost code 0.8 % at one client.
_PRIOR_STEPS = 16.0
"""Weight of all requests beside a request's own steps (steps)."""
_KNOWN_TEXT = 16
"""Least match (tokens) of a request that counts as known text."""
_KNOWN_STEPS = 32.0
"""Such requests' steps with the drafter before others lose it at once."""
# Without these, steps would tell nothing of the drafter any more.
_TRIED = 8
"""Of requests that may lose the drafter at once, one in `_TRIED` keeps it."""
_LEAST_REQUESTS, _KEPT_REQUESTS = 8.0, 0.95
"""Requests that try the drafter before others need not, and their decay."""
# The more requests there are, the sooner a new one needs the drafter's pass again.
_MARGIN = 0.01
"""Least relative gain, per further decoding request, for leaving the drafter out."""


class LookupAlone:
    """Times of each request with the drafter, and by the look-up alone."""

    def __init__(self) -> None:
        self._both, self._alone = floats(0.0), floats(0.0)
        self._steps = integers(0)
        self._given_up = integers(0)
        self._known_text, self._met = integers(0), 0
        """By slot: 0 new text, 1 known text, 2 the same, to try the drafter."""
        self._all = np.array((1.0, 1.0))
        self._of_known = np.zeros(3)
        """Sums over the steps of known text: with both, by the look-up alone, steps."""
        self._copied = np.array((0.0, 1.0))
        self._age = integers(0)
        self._trusting = integers(0)
        """By slot: 1 where other requests have settled it for this one."""
        self._begun = 0
        self._ended = np.zeros(2)
        """Sums over requests that have ended: number, steps."""
        self._gains = np.zeros(3)
        """Sums over requests that tried the drafter: number, gain of leaving it, its square."""

    def pays(self, context: StepContext) -> bool:
        """Whether this step leaves the drafter's pass out. If so, all its requests are given up."""
        capability = context.capability
        if not (capability.off_pass and capability.cold_off and capability.steers_depth):
            return False
        slots = context.slots
        self._begin(slots)
        self._meet_known_text(slots, context)
        if context.prefill_tokens or context.waiting:
            return False
        lost = (self._given_up[slots] > 0) & (context.draft_possible == 0)
        prior = np.repeat(self._all[:, None] / self._all[1], len(slots), axis=1)
        enough = self._steps[slots] >= _LEAST_STEPS
        if self._of_known[2] >= _KNOWN_STEPS:
            known = self._known_text[slots]
            prior[:, known > 0] = (self._of_known[:2] / self._of_known[1])[:, None]
            enough |= known == 1
        trusting = self._trusting[slots] == 1
        prior[:, trusting & (self._known_text[slots] == 0)] = ((math.exp(self._mean_gain),), (1.0,))
        enough |= trusting
        both, alone = self._both[slots], self._alone[slots]
        both, alone = both + _PRIOR_STEPS * prior[0], alone + _PRIOR_STEPS * prior[1]
        better = enough & (both > (1.0 + _MARGIN * (len(slots) - 1)) * alone)
        if not bool((lost | better).all()):
            return False
        self._given_up[slots] = 1
        return True

    def learn_times(
        self, step: FinishedStep, cost: CostModel, survival: FloatArray, survival_copied: FloatArray
    ) -> None:
        """Take up a step that ran the drafter.

        Args:
            step: the step.
            cost: step times.
            survival: [Kmax, B] of the drafter's drafts, by the hazards before this step.
            survival_copied: [Kmax, B] of the looked-up drafts, likewise.
        """
        outcome, found = step.outcome, step.context.lookup_available
        if found is None or not outcome.batch_size:
            return
        curve = cost.verify_seconds(outcome.batch_size, outcome.context_tokens, 0)
        drafts = min(outcome.batch_tokens - outcome.batch_size, len(curve) - 1)
        drafting = float(cost.draft_seconds(outcome.batch_size)[outcome.draft_depth])
        verifying = float(curve[drafts])
        if not verifying > 0.0:
            return
        slots: IntArray = outcome.slots
        looked_up = step.plan.from_lookup
        by_drafter = np.ones(len(slots), dtype=bool) if looked_up is None else ~looked_up
        with_it = step.context.draft_possible > 0
        position = np.arange(len(survival))[:, None]
        accepted = np.sum(survival, axis=0, where=position < outcome.verified)
        copied = np.sum(survival_copied, axis=0, where=position < found)
        seen = by_drafter & with_it
        sums = (float(copied[seen].sum()), float(seen.sum()))
        self._copied = _KEPT_OF_ALL * self._copied + sums
        more = (accepted - copied) / (1.0 + self._copied[0] / self._copied[1])
        alone = np.where(by_drafter, 1.0 + more, 1.0)
        both = 1.0 + drafting / verifying
        keep = np.where(with_it, _KEPT, 1.0)
        self._both[slots] = keep * self._both[slots] + with_it * both
        self._alone[slots] = keep * self._alone[slots] + with_it * alone
        self._steps[slots] += with_it
        count = int(with_it.sum())
        sums = (both * count, float(alone[with_it].sum()))
        self._all = _KEPT_OF_ALL**count * self._all + sums
        known = with_it & (self._known_text[slots] > 0)
        count = int(known.sum())
        more_known = (both * count, float(alone[known].sum()), count)
        self._of_known = _KEPT_OF_ALL**count * self._of_known + more_known

    def forget(self, slots: IntArray) -> None:
        """Drop the state of ended requests."""
        if not self._begun:
            return
        age, steps = self._age[slots], self._steps[slots]
        both, alone = self._both[slots], self._alone[slots]
        for row in np.flatnonzero(age):
            self._ended = _KEPT_REQUESTS * self._ended + (1.0, float(age[row]))
            # Where look-ups promise far more than the drafter, the predicted time may be below 0.
            if steps[row] >= _LEAST_STEPS and alone[row] > 0.0:
                gain = math.log(float(both[row] / alone[row]))
                self._gains = _KEPT_REQUESTS * self._gains + (1.0, gain, gain * gain)
        for rows in (self._both, self._alone):
            rows.reset(slots)
        for counts in (self._steps, self._given_up, self._known_text, self._age, self._trusting):
            counts.reset(slots)

    @property
    def _mean_gain(self) -> float:
        """Mean of ln(with both / by the look-up alone) over requests that tried the drafter."""
        return float(self._gains[1] / max(self._gains[0], 1.0))

    @property
    def _settled(self) -> bool:
        """Whether a trial of the drafter by one request more is not worth its cost."""
        count, mean = float(self._gains[0]), self._mean_gain
        if count < _LEAST_REQUESTS or mean <= 0.0:
            return False
        spread = math.sqrt(max(float(self._gains[2]) / count - mean * mean, 1e-12))
        lifetime = float(self._ended[1] / self._ended[0])
        found = spread * float(unit_loss(np.array(mean / spread)))
        return lifetime * found < _LEAST_STEPS * mean

    def _begin(self, slots: IntArray) -> None:
        """Count a step of these requests; of a new one, decide whether it tries the drafter."""
        self._age[slots] += 1
        new = slots[self._age[slots] == 1]
        if new.size:
            turn = self._begun + np.arange(1, new.size + 1)
            self._begun += new.size
            self._trusting[new] = np.where(turn % _TRIED > 0, int(self._settled), 0)

    def _meet_known_text(self, slots: IntArray, context: StepContext) -> None:
        """Note the requests that have come to known text; they remain such to their end."""
        match = context.lookup_match
        if match is None:
            return
        for slot in slots[(match >= _KNOWN_TEXT) & (self._known_text[slots] == 0)]:
            self._met += 1
            self._known_text[slot] = 1 if self._met % _TRIED else 2


_FIRST_PRICE = 0.3
"""Price of a verified draft (tokens) before a plan has shown one."""
_PRICE_RATE = 0.1
"""Weight of a new plan's price."""


class Chosen(NamedTuple):
    """Drafts that each request may verify, from its source.

    Attributes:
        context: the step, with `draft_available` of the source that a request takes.
        hazard: [Kmax, B] of these drafts.
        from_lookup: [B] requests that take looked-up drafts; None: nobody.
        ahead: what the drafter's next drafts are worth; None: as much as these.
    """

    context: StepContext
    hazard: FloatArray
    from_lookup: BoolArray | None = None
    ahead: Ahead | None = None


class DraftSources:
    """Chooses, at the price that plans have shown."""

    def __init__(self) -> None:
        self._price = _FIRST_PRICE

    def priced(self, forecast: StepForecast) -> None:
        """Follow the price of a verified draft: no more than the plan pays for its worst one."""
        price, verify = verify_price(forecast), forecast.best.verify
        if verify.any():
            last = np.take_along_axis(forecast.survival, np.maximum(verify - 1, 0)[None], axis=0)[0]
            price = min(price, float(last[verify > 0].min()))
        self._price += _PRICE_RATE * (price - self._price)

    def choose(self, context: StepContext, hazard: FloatArray, lookup: LookupModel) -> Chosen:
        """Choose for a step.

        Args:
            context: the step.
            hazard: [Kmax, B] of the drafter's drafts, by history.
            lookup: hazards of the others.
        """
        copied, match = context.lookup_available, context.lookup_match
        uniform = context.capability.level is Level.UNIFORM
        if copied is None or match is None or uniform or not copied.any():
            return Chosen(context, hazard)
        of_copied = lookup.hazard(context.slots, match)
        survival, survival_copied = survival_of(hazard), survival_of(of_copied)
        drafted = context.draft_available
        worth = self._worth(survival, drafted)
        chosen = self._worth(survival_copied, copied) > worth
        if not chosen.any():
            return Chosen(context, hazard)
        agreeing = np.take_along_axis(survival_copied, np.maximum(copied - 1, 0)[None], axis=0)[0]
        goes_on = np.where(chosen, agreeing, 0.0)
        inside = np.arange(len(hazard))[:, None] < copied
        more = goes_on * np.sum(survival_copied, axis=0, where=inside)
        return Chosen(
            msgspec.structs.replace(
                context, draft_available=np.where(chosen, copied, context.draft_available)
            ),
            np.where(chosen, of_copied, hazard),
            chosen,
            Ahead(survival * (1.0 - goes_on), more),
        )

    def _worth(self, survival: FloatArray, available: IntArray) -> FloatArray:
        inside = np.arange(len(survival))[:, None] < available
        worth: FloatArray = np.sum(np.maximum(survival - self._price, 0.0), axis=0, where=inside)
        return worth
