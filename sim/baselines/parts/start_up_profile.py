"""Step times for baselines that profile the engine before they serve.

With a cost profile the times are known from the start. Otherwise they are learned from running
steps, by the belief of `adaptive_spec.policies.step_times`, and upstream's start-up measurements
happen when a load first occurs: `unmeasured` returns the next K to run for some steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adaptive_spec.policies.cost_profile import load_profile
from adaptive_spec.policies.optional.profile_prior import prior_of_profile
from adaptive_spec.policies.step_times import StepTimes
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.step import Capability, FloatArray, StepContext, StepOutcome

_ATTEMPTS = 12
"""Most steps that try a K at a load."""
UNSURE = 0.05
"""Standard deviation of a step time, relative to others, from where it counts as unknown."""
_ROOM = 0.75
"""Least fraction of requests with room for a K that is tried."""


class StartUpProfile:
    """Seconds of a round in which every request drafts and verifies K.

    Args:
        path: file with a cost profile, or None.

    Raises ConfigError if the file cannot be read.
    """

    def __init__(self, path: str | None) -> None:
        self.profile = None if path is None else load_profile(path)
        self._capability: Capability | None = None
        self._cost: StepTimes | None = None
        self._untimed = UntimedDepths(_ATTEMPTS)

    def start(self, capability: Capability) -> None:
        """Set the engine's capability before the first plan. Further calls do nothing."""
        if self._capability is None:
            self._capability = capability
            self._cost = StepTimes(capability)
            if self.profile is not None:
                self._cost.restore(prior_of_profile(self.profile, self._cost))

    @property
    def ready(self) -> bool:
        """Return whether the model can predict step times."""
        return self._cost is not None and self._cost.scale > 0.0

    def unmeasured(self, context: StepContext, room: float = _ROOM) -> int | None:
        """Return the next K to run to measure this load; None if its step times are known.

        Returns None in steps with prompts, which would measure the prompts.

        Args:
            context: of the step.
            room: least fraction of requests with room for a K that is tried.
        """
        if self._cost is None or self.profile is not None:
            return None
        if context.batch_size == 0 or context.prefill_tokens:
            return None
        least = room * context.batch_size

        def has_room(k: int) -> bool:
            return bool(np.count_nonzero(context.draft_possible >= k) >= least)

        return self._untimed.offer(self._cost, context, has_room)

    def round_seconds(
        self, batch_size: int, context_tokens: int, *, off_without_drafter: bool = False
    ) -> FloatArray:
        """Return [Kmax + 1] seconds of a round with K = 0..Kmax; requires `ready`.

        Args:
            batch_size: B >= 1.
            context_tokens: sum over the batch.
            off_without_drafter: skip the drafter entirely at K = 0.
        """
        assert self._cost is not None
        assert self._capability is not None
        verify, draft = self._cost.curves(batch_size, context_tokens, scale=self._cost.scale)
        if not self._capability.steers_depth:
            draft[1:] = draft[-1]
        if off_without_drafter:
            draft[0] = 0.0
        seconds: FloatArray = verify[::batch_size] + draft
        return seconds

    def full_draft_seconds(self, context: StepContext) -> FloatArray:
        """Return [B * Kmax + 1] non-decreasing seconds by verified drafts, drafting to Kmax."""
        assert self._cost is not None
        verify, draft = self._cost.curves(
            context.batch_size,
            int(context.context_tokens.sum()),
            scale=self._cost.scale,
            besides=self._cost.prompt_seconds(context.prefill_tokens),
        )
        seconds: FloatArray = np.maximum.accumulate(verify) + draft[-1]
        return seconds

    def record(self, outcome: StepOutcome) -> None:
        """Learn a step's measured duration."""
        if self._cost is not None:
            self._cost.learn(outcome, cold=False)


class UntimedDepths:
    """Order in which K are timed at a load.

    Args:
        attempts: times a K is offered at a load, anew after step times have changed. Running it may
            fail to time it: requests near their end never reach it, and a step with prompts
            measures the prompts.
    """

    def __init__(self, attempts: int) -> None:
        self._most = attempts
        self._offered: dict[tuple[int, int], int] = {}
        self._jumped = False

    def offer(
        self,
        cost: StepTimes,
        context: StepContext,
        worthwhile: Callable[[int], bool] | None = None,
    ) -> int | None:
        """The K to run, among those `worthwhile`; None if there is none."""
        if cost.jumped and not self._jumped:
            self._offered.clear()
        self._jumped = cost.jumped
        load = load_bin(context.batch_size)

        def left(k: int) -> bool:
            few = self._offered.get((load, k), 0) < self._most
            return few and (worthwhile is None or worthwhile(k))

        k = most_unsure(cost, context, left)
        if k is not None:
            self._offered[load, k] = self._offered.get((load, k), 0) + 1
        return k


def most_unsure(
    cost: StepTimes, context: StepContext, worthwhile: Callable[[int], bool] = lambda k: True
) -> int | None:
    """The K to run so that step times become known; None if all are, within `UNSURE`.

    It is the K whose time tells most of all times relative to one another; the common level says
    nothing about which is best.

    Args:
        cost: step times.
        context: a step in which every request would verify K drafts, or as many as it has.
        worthwhile: which of the engine's K are asked about.
    """
    capability, possible = context.capability, context.draft_possible
    ks = list(capability.uniform_values)
    if not cost.scale:
        return next((k for k in ks if worthwhile(k)), None)
    drafts = np.array([np.minimum(possible, k).sum() for k in ks])
    depths = ks if capability.steers_depth else [capability.max_draft_tokens] * len(ks)
    rows = cost.rows(
        context.batch_size,
        cost.tokens(context.batch_size, drafts),
        int(context.context_tokens.sum()),
        cost.passes[depths],
    )
    rows /= np.maximum(rows @ cost.coefficients, 1e-3)[:, None]
    covariance = rows @ cost.covariance @ rows.T
    relative = covariance - covariance.mean(axis=0)
    unknown = np.diag(relative) - relative.mean(axis=1)
    told = (relative**2).sum(axis=0) / (np.diag(covariance) + cost.noise)
    asked = [n for n, k in enumerate(ks) if worthwhile(k)]
    if not asked or max(unknown[asked]) <= UNSURE**2:
        return None
    return ks[max(asked, key=lambda n: float(told[n]))]
