"""A closed loop of fake requests around a policy, for tests of what is learned.

Not the simulator: requests of a few kinds with known hazards, a known cost, C requests always
running. Truth is known, so a policy can be held against the best fixed K.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.policy import Policy
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)
from tests import steps as made


class Machine(NamedTuple):
    """Seconds of a step: fixed + token * N (beyond free tokens) + pass_ * D + context."""

    fixed: float
    token: float
    free_tokens: int
    draft_pass: float
    draft_request: float
    per_request: float = 0.0
    per_context: float = 0.0

    def seconds(self, tokens: int, batch: int, passes: int, context: int) -> float:
        return (
            self.fixed
            + self.token * max(tokens - self.free_tokens, 0)
            + passes * (self.draft_pass + self.draft_request * batch)
            + self.per_request * batch
            + self.per_context * context
        )


LAPTOP = Machine(0.055, 0.0035, 4, 0.0020, 0.0002, 0.001)
GPU = Machine(7.1e-3, 2.1e-5, 0, 5.3e-4, 2e-7, 0.0, 3.9e-8)


class Result(NamedTuple):
    """Tokens per second, mean K, and the share of steps without drafts."""

    tokens_per_second: float
    mean_k: float
    off_fraction: float


def run(
    policy: Policy,
    *,
    concurrency: int,
    hazards: Callable[[np.random.Generator], np.ndarray],
    machine: Machine,
    steps: int,
    warmup: int = 0,
    kmax: int = 6,
    level: Level = Level.FULL,
    delay: int = 0,
    noise: float = 0.05,
    length: int = 150,
    seed: int = 0,
) -> Result:
    """Drive a policy; returns what it reached after `warmup` steps."""
    random = np.random.default_rng(seed)
    capability = Capability(level=level, max_draft_tokens=kmax)
    slots = RequestSlots()
    names = [f"r{i}" for i in range(concurrency)]
    born = concurrency
    skill = np.stack([hazards(random) for _ in names])
    remaining = random.integers(20, 2 * length, concurrency)
    context_tokens = random.integers(50, 300, concurrency)
    drafted = np.zeros(concurrency, dtype=np.int64)
    pending: deque[FinishedStep] = deque()
    now = 1000.0
    tokens = seconds = total_k = 0.0
    off = 0
    for step in range(steps + warmup):
        possible = np.clip(remaining - 1, 0, kmax)
        context = made.context(
            capability=capability,
            step=step,
            request_ids=names,
            slots=[slots.assign(name) for name in names],
            context_tokens=context_tokens,
            draft_available=np.minimum(possible, drafted),
            draft_possible=possible,
            now=now,
        )
        plan = policy.plan(context)
        depth = kmax if level is Level.VERIFY else plan.draft_depth
        hits = random.random((concurrency, kmax)) < skill
        accepted = np.minimum(hits.cumprod(axis=1).sum(axis=1), plan.verify)
        emitted = np.minimum(accepted + 1, remaining)
        batch_tokens = concurrency + int(plan.verify.sum())
        truth = machine.seconds(batch_tokens, concurrency, max(depth, 1), int(context_tokens.sum()))
        measured = truth * float(np.exp(noise * random.standard_normal()))
        if random.random() < 0.01 and noise > 0:
            measured *= 5.0
        now += truth
        outcome = made.outcome(
            context,
            plan.verify,
            accepted,
            emitted=emitted,
            draft_depth=depth,
            seconds=measured,
            now=now,
        )
        pending.append(finished_step(context, plan, outcome))
        if len(pending) > delay:
            policy.observe(pending.popleft())
        if step >= warmup:
            tokens += float(emitted.sum())
            seconds += truth
            total_k += float(plan.verify.mean())
            off += int(plan.draft_depth == 0 and not plan.verify.any())
        remaining = remaining - emitted
        context_tokens = context_tokens + emitted
        drafted = np.full(concurrency, depth, dtype=np.int64)
        for i in np.flatnonzero(remaining <= 0):
            slot = slots.release(names[i])
            policy.forget(np.array([slot], dtype=np.int64))
            names[i] = f"r{born}"
            born += 1
            skill[i] = hazards(random)
            remaining[i] = random.integers(20, 2 * length)
            context_tokens[i] = random.integers(50, 300)
            drafted[i] = 0
    return Result(tokens / seconds, total_k / steps, off / steps)


def mixed(random: np.random.Generator) -> np.ndarray:
    """Kinds of prompt whose drafts are accepted almost always, half the time, hardly ever."""
    return np.full(16, random.choice([0.93, 0.75, 0.5, 0.2]))


def alike(hazard: float) -> Callable[[np.random.Generator], np.ndarray]:
    """Every request the same."""
    return lambda random: np.full(16, hazard)


def observe(
    policy: Any, context: StepContext, plan: SpecPlan, accepted: Any, seconds: float, **changes: Any
) -> StepOutcome:
    """Let a policy learn the step that ran a plan; `changes` are fields of the outcome."""
    fields = {"draft_depth": plan.draft_depth, "seconds": seconds} | changes
    outcome = made.outcome(context, plan.verify, accepted, **fields)
    policy.observe(finished_step(context, plan, outcome))
    return outcome


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
