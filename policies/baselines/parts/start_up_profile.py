"""Step times for peers that profile the engine before they serve.

With a cost profile they are known from the start. Without one they are learned from the steps
that run (`adaptive_spec.cost.model`), and what upstream measures at start-up is measured when a
load first occurs: `unmeasured` names the next K to run for some steps.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from adaptive_spec.cost.model import CostModel
from adaptive_spec.cost.profile import CostProfile, load_profile
from adaptive_spec.cost.untimed_depths import UntimedDepths
from adaptive_spec.errors import PolicyError
from adaptive_spec.kernels import load_kernels
from adaptive_spec.step import Capability, FloatArray, StepContext, StepOutcome

_ATTEMPTS = 12
"""Steps in which a K is tried at a load."""
_ROOM = 0.75
"""Fraction of the requests that must have room for a K for it to be tried."""


class StartUpProfile:
    """Seconds of a round in which every request drafts and verifies K.

    Args:
        path: file with a cost profile, or None.

    Raises ConfigError if the file can't be read.
    """

    def __init__(self, path: str | None) -> None:
        load_kernels()
        self._profile = None if path is None else load_profile(path)
        self._capability: Capability | None = None
        self._cost: CostModel | None = None
        self._untimed = UntimedDepths(_ATTEMPTS)

    def start(self, capability: Capability) -> None:
        """Say what the engine allows; before the first plan. Further calls do nothing."""
        if self._capability is None:
            self._capability = capability
            self._cost = CostModel(capability, self._profile)

    @property
    def ready(self) -> bool:
        """There is something to predict from."""
        return self._cost is not None and self._cost.ready

    def unmeasured(self, context: StepContext) -> int | None:
        """The K to run next so that this load gets measured; None if it has been.

        Steps with prompts measure the prompts, so nothing is asked of them.
        """
        if self._cost is None or context.batch_size == 0 or context.prefill_tokens:
            return None
        least = _ROOM * context.batch_size

        def has_room(k: int) -> bool:
            return bool(np.count_nonzero(context.draft_possible >= k) >= least)

        return self._untimed.offer(self._cost, context.batch_size, has_room)

    def round_seconds(
        self, batch_size: int, context_tokens: int, *, off_without_drafter: bool = False
    ) -> FloatArray:
        """[Kmax + 1] seconds of a round with K = 0..Kmax; `ready` must hold.

        Args:
            batch_size: B >= 1.
            context_tokens: sum over the batch.
            off_without_drafter: at K = 0 the drafter does not even run to stay in step.
        """
        assert self._cost is not None
        assert self._capability is not None
        verify = self._cost.verify_seconds(batch_size, context_tokens, 0)[::batch_size]
        draft = self._cost.draft_seconds(batch_size)
        if not self._capability.steers_depth:
            draft[1:] = draft[-1]
        if off_without_drafter:
            draft[0] = 0.0
        seconds: FloatArray = verify + draft
        return seconds

    def ragged_seconds(
        self, batch_size: int, context_tokens: int, drafts: int, depth: int
    ) -> float:
        """Seconds of a round that drafts to `depth` and verifies `drafts` in all."""
        assert self._cost is not None
        verify = self._cost.verify_seconds(batch_size, context_tokens, 0)[drafts]
        return float(verify + self._cost.draft_seconds(batch_size)[depth])

    def learn(self, outcome: StepOutcome) -> None:
        """Take up a step's measured duration."""
        if self._cost is not None:
            self._cost.learn(outcome)

    def state(self) -> dict[str, Any] | None:
        """The profile so far, JSON-compatible; None if there is nothing."""
        profile = self._profile
        if self._cost is not None and self._cost.samples:
            profile = self._cost.profile()
        if profile is None:
            return None
        builtins: dict[str, Any] = msgspec.to_builtins(profile)
        return builtins

    def restore(self, state: object) -> None:
        """Start from a saved profile; None changes nothing. Raises PolicyError."""
        if state is None:
            return
        try:
            self._profile = msgspec.convert(state, CostProfile)
        except (msgspec.ValidationError, ValueError) as error:
            raise PolicyError(f"saved cost profile: {error}") from error
        if self._capability is not None:
            self._cost = CostModel(self._capability, self._profile)
