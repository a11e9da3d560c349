"""When the drafter's pass is left out, because look-ups find what the requests need.

A drafter with a state runs a pass in every step, also where all requests verify looked-up drafts.
Each finished step counts how long it took with both sources, and how long the look-up alone would
have taken for the same tokens, in steps without a drafter's pass. Let c be the time of drafting
over that of verification, d the accepted drafts that the drafter's hazards predict for the
verified drafts, g the same for all looked-up drafts, and l the mean of g over steps that verify
the drafter's drafts.

| the request verified | with both | by the look-up alone |
| --- | --- | --- |
| looked-up drafts | 1 + c | 1 |
| the drafter's | 1 + c | 1 + (d - g) / (1 + l) |

Predicted numbers of accepted drafts vary by a third as much from step to step as observed ones, and
a look-up may be predicted to do better than the drafter that was chosen over it, but an observed
look-up ends where the emitted tokens end.

Sums over a request's last steps, with those of all requests as a prior, tell which is faster. The
drafter cannot continue text it has not seen, so requests of a step without its pass are without
its drafts to their end. The pass is left out only where every decoding request is faster alone, and
no prompt is due. The hazards come from finished steps, so outputs keep their distribution.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.per_request import floats, integers
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import FinishedStep, FloatArray, IntArray, StepContext

_KEPT = 0.95
"""Share of a request's sums that a step leaves: requests change."""
_KEPT_OF_ALL = 0.998
"""The same of the sums over all requests, by request and step."""
_LEAST_STEPS = 8
"""Steps with the drafter before a request may lose it; the others learn from them, too."""
_PRIOR_STEPS = 16.0
"""Weight of all requests beside a request's own steps. Without it, stretches that copy by chance
cost code 0.8 % at one client."""
_MARGIN = 0.01
"""Relative gain, for each decoding request but the first, from which the drafter is left: the more
requests there are, the sooner a new one needs the pass again."""


class LookupAlone:
    """What each request took, and would have taken without the drafter."""

    def __init__(self) -> None:
        self._both, self._alone = floats(0.0), floats(0.0)
        self._steps = integers(0)
        self._given_up = integers(0)
        self._all = np.array((1.0, 1.0))
        self._copied = np.array((0.0, 1.0))

    def pays(self, context: StepContext) -> bool:
        """Whether this step leaves the drafter's pass out. If so, all its requests are given up."""
        capability = context.capability
        if context.lookup_available is None:
            return False
        if not (capability.off_pass and capability.cold_off and capability.steers_depth):
            return False
        if context.prefill_tokens or context.waiting:
            return False
        slots = context.slots
        lost = (self._given_up[slots] > 0) & (context.draft_possible == 0)
        own = _PRIOR_STEPS / self._all[1] * self._all
        both, alone = self._both[slots] + own[0], self._alone[slots] + own[1]
        enough = self._steps[slots] >= _LEAST_STEPS
        better = enough & (both > (1.0 + _MARGIN * (len(slots) - 1)) * alone)
        if not bool((lost | better).all()):
            return False
        self._given_up[slots] = 1
        return True

    def learn(
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

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        for rows in (self._both, self._alone):
            rows.reset(slots)
        self._steps.reset(slots)
        self._given_up.reset(slots)
