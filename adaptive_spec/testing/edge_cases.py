"""Rare engine steps that a policy must handle.

Covers steps of prompts only, no drafts, unknown confidence, no free KV cache, a clock that stands
still, and outcomes that arrive two steps late, without some requests, with the engine's own K, or
never. The controller catches a policy's exceptions, but then runs the engine's own K: a policy that
fails in such steps is benched just when load is high.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.policy import Policy
from adaptive_spec.step import (
    BoolArray,
    Capability,
    FinishedStep,
    IntArray,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)
from adaptive_spec.testing.fake_engine import KMAX, Round, entropy_of

_STEPS = 72
_LATE_BY = 2
_BATCHES = (0, 3, 1, 0, 7, 3, 40, 2, 5)

Answer = TypeVar("Answer")


def check_edge_cases(make: Callable[[], Policy], capability: Capability) -> None:
    """Check that a policy plans, learns and forgets in edge cases without an exception.

    Raises AssertionError with one line that names the failed call or the invalid plan.
    """
    _check_strange_order(make(), capability)
    policy = make()
    random = np.random.default_rng(29)
    due: list[FinishedStep] = []
    seen: set[int] = set()
    for number in range(_STEPS):
        batch = _BATCHES[number % len(_BATCHES)]
        slots: IntArray = random.permutation(60)[:batch].astype(np.int64)
        seen.update(slots.tolist())
        context = _context(number, capability, slots, random)
        plan = _planned(policy, context)
        if number % 5 != 4:  # every fifth outcome never arrives
            due.append(finished_step(context, plan, _outcome(number, context, plan, random)))
        while due and due[0].outcome.step <= context.step - _LATE_BY:
            step = due.pop(0)
            _answer("observe", step.outcome.step, policy.observe, step)
        if number % 4 == 3:
            gone: IntArray = random.permutation(60)[:10].astype(np.int64)
            _answer("forget", context.step, policy.forget, gone)
    every = np.array(sorted(seen), dtype=np.int64)
    _answer("forget", _STEPS, policy.forget, every)
    try:
        json.dumps(_answer("state", _STEPS, policy.state), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(
            f"state() after edge cases must be JSON without NaN: {error}"
        ) from None


def _check_strange_order(policy: Policy, capability: Capability) -> None:
    """Call `forget` and `observe` before the first plan, as after a restart."""
    random = np.random.default_rng(31)
    nobody: IntArray = np.zeros(0, dtype=np.int64)
    first = _context(5, capability, np.array([2, 700], dtype=np.int64), random)
    whole = SpecPlan(
        step=5, verify=first.draft_available, draft_depth=KMAX, mode=Mode.ON, reason="all"
    )
    _answer("forget", 0, policy.forget, np.array([900], dtype=np.int64))
    _answer("forget", 0, policy.forget, nobody)
    unasked = finished_step(first, whole, _outcome(5, first, whole, random))
    _answer("observe", 5, policy.observe, unasked)
    _planned(policy, first)


def _context(
    number: int, capability: Capability, slots: IntArray, random: np.random.Generator
) -> StepContext:
    """Build a step whose edge cases depend on its number."""
    batch = len(slots)
    round_ = Round([f"odd-{slot}" for slot in slots], slots, random)
    rungs = capability.uniform_values
    available = np.minimum(round_.possible, rungs[-1])
    possible = round_.possible
    if number % 7 == 2:
        available, possible = np.zeros_like(available), np.zeros_like(possible)
    context = StepContext(
        step=number + 3 * (number // 10),  # some step numbers are skipped
        capability=capability,
        request_ids=round_.names,
        slots=slots,
        context_tokens=np.full(batch, 1 << (number % 20), dtype=np.int64),
        draft_available=available,
        draft_possible=possible,
        engine_k=rungs[number % len(rungs)],
        tpot_target=np.where(np.arange(batch) % 2 == 0, np.inf, 1e-6),
        task=np.arange(batch, dtype=np.int64) % 4 - 1,
        temperature=np.zeros(batch),
        waiting=1000 * (number % 2),
        prefill_tokens=8192 * (number % 3 == 0),
        kv_free_tokens=0 if number % 6 == 5 else 1 << 20,
        kv_total_tokens=1 << 20,
        now=100.0 + 0.02 * (number // 3),
    )
    unknown = np.full((batch, KMAX), np.nan)
    confidence = {0: None, 1: unknown, 2: np.ones((batch, KMAX)), 3: np.zeros((batch, KMAX))}.get(
        number % 6, round_.confidence
    )
    if confidence is None:
        return context
    entropy = unknown if number % 6 == 4 else entropy_of(confidence)
    return msgspec.structs.replace(context, confidence=confidence, entropy=entropy)


def _outcome(
    number: int, context: StepContext, plan: SpecPlan, random: np.random.Generator
) -> StepOutcome:
    """Build an outcome: sometimes the engine's own K, without requests that have ended since."""
    verified = plan.verify
    if number % 4 == 1:
        verified = np.minimum(context.draft_available, context.engine_k)
    alive: BoolArray = random.random(context.batch_size) < 0.7
    accepted = np.minimum(random.integers(0, KMAX + 1, context.batch_size), verified)
    return StepOutcome(
        step=context.step,
        slots=np.ascontiguousarray(context.slots[alive]),
        verified=np.ascontiguousarray(verified[alive]),
        accepted=np.ascontiguousarray(accepted[alive]),
        emitted=np.maximum(accepted[alive] + 1 - number % 2, 0),
        batch_size=context.batch_size,
        batch_tokens=context.batch_size + int(verified.sum()),
        context_tokens=int(context.context_tokens.sum()),
        prefill_tokens=context.prefill_tokens,
        draft_depth=plan.draft_depth if number % 4 != 1 else context.engine_k,
        ragged=bool(np.ptp(verified) > 0) if verified.size else False,
        seconds=float("nan") if number % 4 == 2 else (1e-6, 0.02, 30.0)[number % 3],
        now=context.now,
    )


def _planned(policy: Policy, context: StepContext) -> SpecPlan:
    plan = _answer("plan", context.step, policy.plan, context)
    fault = plan_fault(plan, context)
    if fault:
        raise AssertionError(f"edge cases, step {context.step} (B = {context.batch_size}): {fault}")
    return plan


def _answer(what: str, step: int, call: Callable[..., Answer], *arguments: Any) -> Answer:
    try:
        return call(*arguments)
    except Exception as error:
        raise AssertionError(
            f"edge cases, step {step}: {what} raised {type(error).__name__}: {error}"
        ) from error
