"""The smallest engine that drives a policy step by step: what is accepted and how long it takes is
given, so a test can say what a rule must do next.
"""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policy import Policy
from adaptive_spec.step import Capability, FinishedStep, Level, SpecPlan, StepContext, StepOutcome
from tests import steps

Seconds = Callable[[int, int], float]
"""Of verified tokens N and draft depth D."""


def linear(fixed: float, token: float, draft_pass: float) -> Seconds:
    """fixed + token N + draft_pass max(D, 1)."""
    return lambda tokens, depth: fixed + token * tokens + draft_pass * max(depth, 1)


def profile_file(folder: Path, *, fixed: float, token: float, draft_pass: float) -> str:
    """The same as a cost profile on disk."""
    profile = CostProfile(
        tokens=[1, 2048], seconds=[fixed + token, fixed + 2048 * token], draft_pass=draft_pass
    )
    path = folder / "profile.json"
    path.write_bytes(msgspec.json.encode(profile))
    return str(path)


class TinyEngine:
    """Requests that never end, in slots 0, 1, 2, ...

    Args:
        policy: what is tested.
        accepts: drafts each request would accept.
        batch: number of requests.
        seconds: of a step.
        delay: steps until an outcome is known.
        context_tokens: of each request.
        **capability: of the engine, beside its level and Kmax.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        accepts: int | Sequence[int] = 0,
        batch: int = 4,
        kmax: int = 5,
        level: Level = Level.FULL,
        seconds: Seconds | None = None,
        delay: int = 0,
        context_tokens: int = 100,
        kv_total_tokens: int = 1 << 40,
        **capability: Any,
    ) -> None:
        self.policy = policy
        self.accepts = accepts
        self.batch = batch
        self.seconds = seconds or linear(0.01, 1e-5, 5e-4)
        self.capability = Capability(level=level, max_draft_tokens=kmax, **capability)
        self.confidence: np.ndarray | None = None
        self.outcome: StepOutcome | None = None
        self.depth = 0
        self._step = 0
        self._delay = delay
        self._late: deque[FinishedStep] = deque()
        self._context_tokens = context_tokens
        self._kv_total_tokens = kv_total_tokens

    def context(self) -> StepContext:
        kmax = self.capability.max_draft_tokens
        at_hand = self.depth if self.capability.steers_depth else kmax
        return steps.context(
            self.batch,
            self.capability,
            step=self._step,
            context_tokens=self._context_tokens,
            draft_available=at_hand,
            confidence=self.confidence,
            kv_total_tokens=self._kv_total_tokens,
        )

    def step(self) -> SpecPlan:
        """One step; the plan that ran."""
        context = self.context()
        plan = self.policy.plan(context)
        accepted = np.minimum(np.broadcast_to(self.accepts, self.batch), plan.verify)
        tokens = self.batch + int(plan.verify.sum())
        depth = plan.draft_depth
        if not self.capability.steers_depth:
            depth = self.capability.max_draft_tokens
        self.outcome = steps.outcome(
            context, plan.verify, accepted, draft_depth=depth, seconds=self.seconds(tokens, depth)
        )
        self._late.append(finished_step(context, plan, self.outcome))
        if len(self._late) > self._delay:
            self.policy.observe(self._late.popleft())
        self.depth = plan.draft_depth
        self._step += 1
        return plan

    def run(self, steps: int) -> list[int]:
        """The draft depths of so many steps."""
        return [self.step().draft_depth for _ in range(steps)]

    def verified(self, steps: int) -> list[int]:
        """The largest K_i verified in each of so many steps."""
        return [int(self.step().verify.max()) for _ in range(steps)]
