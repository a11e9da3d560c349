"""Steps around a policy whose plans are looked at; `benchmarks.policy_loop` has scores."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.policy import Policy
from adaptive_spec.step import Capability, Mode, SpecPlan, StepContext
from tests import steps as made


def observe(
    policy: Any, context: StepContext, plan: SpecPlan, accepted: Any, seconds: float, **changes: Any
) -> None:
    """Let a policy learn the step that ran a plan; `changes` are fields of the outcome."""
    fields = {"draft_depth": plan.draft_depth, "seconds": seconds} | changes
    outcome = made.outcome(context, plan.verify, accepted, **fields)
    policy.observe(finished_step(context, plan, outcome))


def plain_steps(
    policy: Policy,
    capability: Capability,
    count: int,
    *,
    batch: int = 8,
    hazard: float | Callable[[int], float] = 0.7,
    first: int = 0,
    token: float = 2e-4,
    draft_pass: float = 1e-3,
    prompt_token: float = 1e-5,
    slow: float = 1.0,
    **changes: Any,
) -> Iterator[tuple[StepContext, SpecPlan]]:
    """Contexts and plans of steps of 20 ms and more; each is observed after it was yielded.

    A slot has another request every 25 steps. Their drafts are accepted with a probability that is
    given, for all steps or by step.
    """
    random, now = np.random.default_rng(first), 10.0 * first
    kmax = capability.max_draft_tokens
    for number in range(first, first + count):
        context = made.context(batch, capability, step=number, now=now, **changes)
        plan = policy.plan(context)
        assert not plan_fault(plan, context), plan_fault(plan, context)
        yield context, plan
        hits = random.random((batch, kmax)) < (
            hazard if isinstance(hazard, float) else hazard(number)
        )
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), plan.verify)
        depth = plan.draft_depth if capability.steers_depth else kmax
        passes = max(depth, int(capability.off_pass))
        if plan.mode is Mode.OFF_COLD:
            depth = passes = 0
        seconds = slow * (0.02 + token * int(plan.verify.sum()) + draft_pass * passes)
        seconds += prompt_token * context.prefill_tokens
        now += seconds
        observe(policy, context, plan, accepted, seconds, draft_depth=depth, now=now)
        if number % 25 == 24:
            policy.forget(context.slots)
