"""Asking the policy after each pass of the drafter, and what a plan may still change then."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from adaptive_spec.step import DraftPass, DraftVerdict


class LiveStops:
    """The verdicts on the drafts at hand.

    Attributes:
        stopped: the drafts at hand are what the policy has left of them while they were made. How
            much was left tells what the drafts showed, so all of it is verified: taking some back
            would bias sampled output.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._seconds = 0.0

    def ask(self, policy: Callable[[DraftPass], DraftVerdict], draft: DraftPass) -> DraftVerdict:
        """The policy's verdict on a pass. Raises what the policy raises; TypeError for none."""
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
        """The drafts at hand were made without asking after each pass: a plan may trim them."""
        self.stopped = False

    def take_seconds(self) -> float:
        """Seconds spent on verdicts since the last call: part of the decision for their step."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds
