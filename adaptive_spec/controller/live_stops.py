"""Early stops: the policy's verdicts on draft passes, and their effect on the plan."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import numpy as np

from adaptive_spec.step import DraftPass, DraftVerdict, SpecPlan, StepContext


class LiveStops:
    """Verdicts on the drafts of the next verification.

    Attributes:
        stopped: the policy stopped the current drafts early. The number of kept drafts depends on
            their signals, so all of them are verified: trimming some would bias sampled output.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._seconds = 0.0

    def ask(self, policy: Callable[[DraftPass], DraftVerdict], draft: DraftPass) -> DraftVerdict:
        """Return the policy's verdict on a pass.

        Raises what the policy raises, and TypeError for a malformed verdict.
        """
        began = time.perf_counter()
        try:
            verdict = policy(draft)
            for answer in (verdict.admitted, verdict.drafting):
                if answer.dtype != np.bool_ or answer.shape != draft.drafting.shape:
                    raise TypeError(f"a verdict is {answer.dtype} {answer.shape}, not bool [B]")
            admitted = draft.drafting & verdict.admitted
            going = admitted & verdict.drafting
            if draft.position == 0:
                self.stopped = False
            self.stopped |= bool((going != draft.drafting).any())
            return DraftVerdict(admitted, going)
        finally:
            self._seconds += time.perf_counter() - began

    def drafted_whole(self) -> None:
        """Record that the drafts were made without early stops, so that a plan may trim them."""
        self.stopped = False

    def take_seconds(self) -> float:
        """Return the seconds spent on verdicts since the last call, part of the decision time."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def all_of_the_drafter(plan: SpecPlan, context: StepContext) -> SpecPlan:
    """Return the plan with every draft of the drafter verified, of the requests that take those."""
    verify, looked_up = context.draft_available, plan.from_lookup
    if looked_up is not None:
        verify = np.where(looked_up, plan.verify, verify)
    return msgspec.structs.replace(plan, verify=verify)
