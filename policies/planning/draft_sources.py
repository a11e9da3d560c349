"""Choice between two sources of drafts, by request: the drafter, or a look-up in earlier text.

At the price p of a verified draft, in tokens, drafts of one source are worth

    sum over j <= K of max(s_j - p, 0)

with K the drafts that source has ready and s_j their survival. A request takes the look-up's where
these are worth more. Hazards of both sources come from finished rounds, p from the plan of the step
before, and a match from emitted text, so that the choice depends on no draft of the round: outputs
keep their distribution.

The drafter's next drafts are worth less to a request that goes on copying. It is expected to where
all drafts that were looked up agree; if every request does, the drafter need not run.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from adaptive_spec.policies.acceptance.lookup_model import LookupModel
from adaptive_spec.policies.acceptance.model import survival_of
from adaptive_spec.policies.planning.step_forecast import Ahead, StepForecast
from adaptive_spec.step import BoolArray, FloatArray, IntArray, Level, StepContext

_FIRST_PRICE = 0.3
_PRICE_RATE = 0.1


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
        price, verify = forecast.verify_price(), forecast.best.verify
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
