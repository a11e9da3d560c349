"""Seconds that speculation loses or gains against true K = 0, step by step.

A step that takes T seconds and emits n tokens loses T - n T_off / B, T_off the seconds of a step at
K = 0 without a drafter pass. Four sums of it are kept, for different questions:

* `cold`: lost by not being in OFF_COLD, and `warm`: by not being in OFF_WARM, never below zero, so
  that gains pay for losses but not for those to come;
* `credit`: gains minus losses of the last few lifetimes of a request. Where requests differ, a few
  bad ones at the same time (with one client: a single one) are no reason to stop;
* the gain since a probe brought speculation back: until it has paid for a probe, speculation is on
  trial.
"""

from __future__ import annotations

_MARGIN = 0.005
"""Relative gain that predicted step times cannot tell from none."""
_CREDIT_LIFETIMES = 4.0
"""How long gains and losses are remembered, in lifetimes of a request."""


class LostSeconds:
    """The four sums.

    Attributes:
        cold: seconds lost by not being in OFF_COLD.
        warm: seconds lost by not being in OFF_WARM.
        credit: seconds gained minus seconds lost, fading.
        on_trial: speculation has not paid for a probe since it began.
    """

    def __init__(self) -> None:
        self.cold = self.warm = self.credit = 0.0
        self.on_trial = True
        self._paid = 0.0

    def ran(
        self,
        lost: float,
        *,
        seconds: float,
        warm_seconds: float,
        lifetime_seconds: float,
        probe_cost: float,
    ) -> None:
        """Take up a step that speculated, or that kept the drafter warm.

        Args:
            lost: seconds lost against OFF_COLD, the margin included.
            seconds: duration of the step.
            warm_seconds: what OFF_WARM would have lost for the tokens of this step.
            lifetime_seconds: mean lifetime of a request.
            probe_cost: seconds that a probe costs.
        """
        memory = max(_CREDIT_LIFETIMES * lifetime_seconds, seconds)
        self.credit -= lost + self.credit * seconds / memory
        self.cold = max(self.cold + lost, 0.0)
        self.warm = max(self.warm + lost - _MARGIN * seconds - warm_seconds, 0.0)
        self._paid -= lost
        if self._paid > probe_cost:
            self.on_trial = False

    def begin_trial(self) -> None:
        """A probe has brought speculation back."""
        self.on_trial, self._paid = True, 0.0

    def clear(self) -> None:
        """Forget losses; the credit stays."""
        self.cold = self.warm = 0.0


def with_margin(seconds: float, tokens: float, seconds_per_token: float) -> float:
    """Return the seconds that a step loses against K = 0 at these seconds per token."""
    return (1.0 + _MARGIN) * seconds - tokens * seconds_per_token
