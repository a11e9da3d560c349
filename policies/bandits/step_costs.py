"""Step times for bandits: the learned cost model, and the K whose time is not known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from adaptive_spec.policies.bandits.hazards import reaching
from adaptive_spec.policies.step_time.model import CostModel, UntimedDepths
from adaptive_spec.policies.step_time.profile import load_profile
from adaptive_spec.step import Capability, FloatArray, IntArray, StepContext

_HOPELESS = 0.7
_MOST_PROMPTS = 4
"""Most prompt tokens per possible draft in a step that measures a K."""


class StepCosts:
    """Online estimates of the step time at a uniform K.

    Args:
        capability: control options of the engine.
        profile: file with an initial cost profile, or None.
        attempts: most trials of a K at a load: where every step has prompts, none gives a clean
            measurement.
    """

    def __init__(self, capability: Capability, profile: str | None, *, attempts: int) -> None:
        self._capability = capability
        self.model = CostModel(capability, load_profile(Path(profile)) if profile else None)
        self._untimed = UntimedDepths(attempts)

    def goodput(self, context: StepContext, survival: FloatArray, arms: IntArray) -> FloatArray:
        """Return [A] expected tokens per second at K = arm for all requests.

        Args:
            context: the step.
            survival: [..., Kmax] probability that all drafts up to a position are accepted; a
                leading axis gives [..., A].
            arms: [A] K values.
        """
        kmax = self._capability.max_draft_tokens
        requests = reaching(context.draft_possible, kmax)
        tokens = _up_to(survival * requests, arms) + context.batch_size
        drafts = _up_to(requests, arms).astype(np.int64)
        verify = self.model.verify_seconds(context.batch_size, int(context.context_tokens.sum()), 0)
        draft = self.model.draft_seconds(context.batch_size)
        depth = arms if self._capability.steers_depth else kmax
        value: FloatArray = tokens / (verify[drafts] + draft[depth])
        return value

    def unmeasured(
        self, context: StepContext, arms: IntArray, goodput: FloatArray | None
    ) -> int | None:
        """Return the index of an arm whose time is to be measured; None if there is none.

        Args:
            context: the step.
            arms: [A] K values.
            goodput: [A] expected tokens per second; arms far below the best are not tried.
        """
        most_tokens = context.batch_size * (1 + self._capability.max_draft_tokens)
        if context.prefill_tokens > _MOST_PROMPTS * most_tokens:
            return None

        def hopeful(k: int) -> bool:
            if goodput is None:
                return True
            return not goodput[np.searchsorted(arms, k)] < _HOPELESS * float(goodput.max())

        k = self._untimed.offer(self.model, context, hopeful)
        return None if k is None else int(np.searchsorted(arms, k))


def _up_to(by_position: FloatArray, arms: IntArray) -> FloatArray:
    """Return [..., A] sums of the first `arm` entries of the last axis."""
    total = np.cumsum(by_position, axis=-1)
    padded = np.concatenate([np.zeros((*total.shape[:-1], 1)), total], axis=-1)
    summed: FloatArray = padded[..., arms]
    return summed
