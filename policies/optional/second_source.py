"""Two sources of drafts: the drafter, and a look-up in earlier text.

Copied drafts have a belief of their own, of the same form as the drafter's: position, request, and
w z with z = ln(match / `MATCH`), where the drafter's has confidence. Its labels are free: a step's
tokens say of each copied draft, verified or not, whether it was right, up to the first wrong one or
the end of these tokens.

At the price p of a verified draft, in tokens, drafts of one source are worth

    sum over j <= K of max(s_j - p, 0),    K: drafts that the source has ready, s_j: survival.

A request takes the source whose drafts are worth more. The drafter's next drafts are worth less to
a request that goes on copying, which it does where all its copied drafts are right.

**The drafter's pass** is weighed by the switch as ever, but against the look-up alone: OFF-cold
still verifies copied drafts. `lost` grows by T - n T_alone / n_alone, with the tokens that copied
drafts were expected to bring. Where copies fade, the drafter comes back at once.

Hazards come from finished steps and matches from emitted text, so no choice depends on a draft of
its own round.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.policies.acceptance import Acceptance, SavedAcceptance
from adaptive_spec.policies.planning.planner import Ahead
from adaptive_spec.policies.planning.step_forecast import StepForecast, verify_price
from adaptive_spec.step import BoolArray, FinishedStep, FloatArray, IntArray, Level, StepContext

COPIED_HAZARD = 0.5
"""Acceptance of a copied draft before any was seen."""
MATCH = 8.0
"""Length of an ordinary match (tokens): z = 0."""
FIRST_PRICE = 0.3
"""Price of a verified draft before a plan has shown one (tokens)."""
PRICE_RATE = 0.1
"""Weight of a new plan's price in the mean."""
COPIES_RATE = 1.0 / 16.0
"""Weight of a step in the mean number of copied drafts that were right."""
FADED = 0.5
"""Share of the copies at the time the drafter stopped below which it comes back."""


class Chosen(NamedTuple):
    """Drafts that each request may verify.

    Attributes:
        context: the step, with `draft_available` of the source that a request takes.
        survival: [Kmax, B] of these drafts.
        from_lookup: [B] requests that take copied drafts.
        ahead: value of the drafter's next drafts.
    """

    context: StepContext
    survival: FloatArray
    from_lookup: BoolArray
    ahead: Ahead


class SecondSource:
    """Belief about copied drafts, and the choice between the sources.

    Attributes:
        copied: the belief.
    """

    def __init__(self, kmax: int) -> None:
        self.copied = Acceptance(kmax, COPIED_HAZARD)
        self._kmax = kmax
        self._price = FIRST_PRICE
        self._right = self._at_stop = 0.0
        """Copied drafts of a request that are right in a step, in the mean; when OFF-cold began."""

    def _survival(self, context: StepContext, slots: IntArray) -> FloatArray:
        assert context.lookup_match is not None
        return self.copied.predict(slots, self._z(context.lookup_match))[1]

    def _z(self, match: IntArray) -> FloatArray:
        z = np.log(np.maximum(match, 1) / MATCH)
        return np.repeat(z[None], self._kmax, axis=0)

    def choose(self, context: StepContext, survival: FloatArray) -> Chosen | None:
        """Choose by request; None where nobody takes copied drafts.

        Args:
            context: the step.
            survival: [Kmax, B] of the drafter's drafts.
        """
        copied = context.lookup_available
        if copied is None or context.capability.level is Level.UNIFORM or not copied.any():
            return None
        of_copied = self._survival(context, context.slots)
        worth = self._worth(survival, context.draft_available)
        chosen: BoolArray = self._worth(of_copied, copied) > worth
        if not chosen.any():
            return None
        all_right = np.take_along_axis(of_copied, np.maximum(copied - 1, 0)[None], axis=0)[0]
        goes_on = np.where(chosen, all_right, 0.0)
        inside = np.arange(self._kmax)[:, None] < copied
        return Chosen(
            msgspec.structs.replace(
                context, draft_available=np.where(chosen, copied, context.draft_available)
            ),
            np.where(chosen, of_copied, survival),
            chosen,
            Ahead(survival * (1.0 - goes_on), goes_on * np.sum(of_copied, axis=0, where=inside)),
        )

    def _worth(self, survival: FloatArray, available: IntArray) -> FloatArray:
        inside = np.arange(self._kmax)[:, None] < available
        worth: FloatArray = np.sum(np.maximum(survival - self._price, 0.0), axis=0, where=inside)
        return worth

    def follow_price(self, forecast: StepForecast) -> None:
        """Follow the price of a verified draft: no more than the plan pays for its worst one."""
        price, verify = verify_price(forecast), forecast.best.verify
        if verify.any():
            last = np.take_along_axis(forecast.survival, np.maximum(verify - 1, 0)[None], axis=0)[0]
            price = min(price, float(last[verify > 0].min()))
        self._price += PRICE_RATE * (price - self._price)

    def alone(self, step: FinishedStep) -> tuple[int, float]:
        """Return the drafts that the look-up alone would verify, and tokens of a request."""
        copied = step.context.lookup_available
        if copied is None or not copied.any():
            return 0, 1.0
        survival = self._survival(step.context, step.outcome.slots)
        used = (np.arange(self._kmax)[:, None] < copied) & (survival > self._price)
        return int(used.sum()), 1.0 + float(survival[used].sum()) / len(copied)

    def fades(self, *, cold: bool) -> bool:
        """Return whether copies have become fewer than when the drafter was stopped."""
        if not cold:
            self._at_stop = self._right
        return self._right < FADED * self._at_stop

    def learn(self, step: FinishedStep) -> None:
        """Learn from every copied draft that the step's tokens show."""
        context, outcome = step.context, step.outcome
        agreed, found = outcome.lookup_agreed, context.lookup_available
        if agreed is None or found is None or context.lookup_match is None:
            return
        shown = np.minimum(found, outcome.emitted)
        right = np.minimum(agreed, shown)
        seen = np.where(right < shown, right + 1, shown)
        self._right += COPIES_RATE * (float(right.mean()) - self._right)
        self.copied.learn(outcome.slots, seen, right, self._z(context.lookup_match))

    def forget(self, slots: IntArray) -> None:
        """Reset the effects of requests that have ended."""
        self.copied.forget(slots)

    def saved(self) -> SavedAcceptance:
        """Return what holds beyond single requests."""
        return self.copied.saved()
