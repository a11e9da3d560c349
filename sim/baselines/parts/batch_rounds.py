"""Rounds of rules that set one K for the whole batch.

In the original engines a round drafts K and then verifies these K. Here drafting closes a step and
verification opens the next one, so a round spans two steps. `BatchRounds` makes the plans. A plan's
`memo` is the K that its results are credited to; None for a step that is no round of one K.

Two ways to change K:

* `next_round`: verify the available drafts, draft the new K. A round costs the same as upstream.
* `this_round`: verify and draft the new K in the same step, so that the step's time measures one K.
  A K above the available drafts needs one step of preparation, which is no round.
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.policy_helpers import nearest_allowed, off_mode
from adaptive_spec.step import Mode, SpecPlan, StepContext


class BatchRounds:
    """Maker of uniform plans.

    Args:
        cold: skip the drafter at K = 0 where the engine can. A drafter with state cannot resume the
            requests alive at that time.
    """

    def __init__(self, *, cold: bool = False) -> None:
        self._cold = cold
        self._drafted: int | None = None
        self._waiting: int | None = None

    def next_round(
        self, context: StepContext, k: int, reason: str, *, measuring: bool = False
    ) -> SpecPlan:
        """Verify all available drafts and draft `k` for the next step.

        A measuring step at K = 0 is never cold.
        """
        capability = context.capability
        k = nearest_allowed(k, capability.uniform_values)
        now = self._at_hand(context)
        if not capability.steers_depth:
            # The fixed depth is drafted while speculation is on, so K takes effect at once; after a
            # step without drafts, K takes effect one step later.
            wanted = k if self._waiting is None else self._waiting
            self._waiting = k if now == 0 and k > 0 else None
            now = min(now, wanted)
        return self._plan_drafting(context, now, k, reason, cold=self._cold and not measuring)

    def this_round(self, context: StepContext, k: int, reason: str) -> SpecPlan:
        """Verify `k` and draft `k`."""
        k = nearest_allowed(k, context.capability.uniform_values)
        return self._plan_drafting(context, k, k, reason, cold=self._cold)

    def prepared(self, context: StepContext, k: int) -> bool:
        """Return whether this step has enough drafts to run `k`."""
        k = nearest_allowed(k, context.capability.uniform_values)
        return k <= self._at_hand(context)

    def _at_hand(self, context: StepContext) -> int:
        capability = context.capability
        if self._drafted is not None:
            # A fixed depth applies whenever speculation is on.
            on = self._drafted > 0 and not capability.steers_depth
            return capability.max_draft_tokens if on else self._drafted
        return int(context.draft_available.max()) if context.batch_size else context.engine_k

    def _plan_drafting(
        self, context: StepContext, now: int, following: int, reason: str, *, cold: bool
    ) -> SpecPlan:
        is_round = context.batch_size > 0 and now <= self._at_hand(context)
        self._drafted = following
        verify = np.minimum(context.draft_available, now)
        on = following > 0 or bool(verify.any())
        off = off_mode(context.capability) if cold else Mode.OFF_WARM
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=following,
            mode=Mode.ON if on else off,
            reason=reason,
            memo=now if is_round else None,
        )
