"""Conformance suites for policies and adapters written elsewhere.

`check_policy` drives a policy through made-up batches; `check_adapter` reads what a real engine's
adapter recorded. Both raise AssertionError with one line that says what the contract asks for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from adaptive_spec.policy import Policy
from adaptive_spec.slots import RequestSlots
from adaptive_spec.values import (
    Capability,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)
from adaptive_spec.verdict import plan_fault

_STEPS = 200
ENGINES_OWN = (Mode.ENGINE, Mode.SHADOW)


def check_policy(make: Callable[[int], Policy], *, levels: Sequence[Level] = tuple(Level)) -> None:
    """Check that a policy keeps the contract of `adaptive_spec.policy.Policy`.

    Args:
        make: builds the policy from a seed.
        levels: the capability levels it is meant for.

    Checked at each level: plans can run on the engine; same seed, same plans; plans do not depend
    on request names; state is JSON and restores; state does not grow with the number of finished
    requests.
    """
    for level in levels:
        capability = Capability(level=level, max_draft_tokens=5)
        plans = _drive(make(7), capability)
        again = _drive(make(7), capability)
        for one, other in zip(plans, again, strict=True):
            _require(
                bool((one.verify == other.verify).all()) and one.draft_depth == other.draft_depth,
                f"level {level.name}: same seed and same history must give the same plans",
            )
        renamed = _drive(make(7), capability, rename=True)
        for one, other in zip(plans, renamed, strict=True):
            _require(
                bool((one.verify == other.verify).all()),
                f"level {level.name}: plans must not depend on request names",
            )
        _check_state(make, capability)
        _check_memory(make, capability)


def check_adapter(
    steps: Iterable[tuple[StepContext, SpecPlan, StepOutcome | None]], *, live_requests: int = 0
) -> None:
    """Check what an adapter recorded while a real engine ran.

    Args:
        steps: context, plan and outcome of every step in order; None where no outcome came.
        live_requests: requests the controller still holds after all have ended; must be 0.

    Checked: steps ascend; arrays are C-contiguous int64; slots are distinct within a batch; drafts
    at hand are within 0..Kmax and within the depth drafted in the step before; what ran is what
    was planned or less (anything up to Kmax where the engine's own K ran); accepted and emitted
    tokens are possible; batch tokens are B + verified drafts or more (padding);
    nothing is left of ended requests.
    """
    previous_step = -1
    previous_depth: int | None = None
    count = 0
    for context, plan, outcome in steps:
        count += 1
        where = f"step {context.step}"
        _require(context.step > previous_step, f"{where}: steps must ascend")
        kmax = context.capability.max_draft_tokens
        batch = context.batch_size
        for name in ("slots", "context_tokens", "draft_available", "draft_possible", "task"):
            array = getattr(context, name)
            _require(len(array) == batch, f"{where}: {name} must have one entry per request")
            _require(
                array.dtype == np.int64 and array.flags.c_contiguous,
                f"{where}: {name} must be a C-contiguous int64 array",
            )
        _require(len(set(context.slots.tolist())) == batch, f"{where}: slots must be distinct")
        available = context.draft_available
        _require(
            batch == 0 or (available.min() >= 0 and available.max() <= kmax),
            f"{where}: draft_available must be within 0..{kmax}",
        )
        if previous_depth is not None and context.capability.level is Level.FULL:
            _require(
                batch == 0 or int(available.max()) <= previous_depth,
                f"{where}: more drafts at hand than were drafted",
            )
        _require(not plan_fault(plan, context), f"{where}: {plan_fault(plan, context)}")
        if outcome is not None:
            _check_outcome(where, context, plan, outcome)
        previous_step, previous_depth = context.step, plan.draft_depth
    _require(count > 0, "no step was recorded")
    _require(live_requests == 0, f"{live_requests} ended requests are still held")


def _check_outcome(where: str, context: StepContext, plan: SpecPlan, outcome: StepOutcome) -> None:
    _require(outcome.step == context.step, f"{where}: outcome of step {outcome.step}")
    kmax = context.capability.max_draft_tokens
    planned = dict(zip(context.slots.tolist(), plan.verify.tolist(), strict=True))
    for slot, verified, accepted, emitted in zip(
        outcome.slots.tolist(),
        outcome.verified.tolist(),
        outcome.accepted.tolist(),
        outcome.emitted.tolist(),
        strict=True,
    ):
        _require(slot in planned, f"{where}: slot {slot} has an outcome but was not planned")
        # The engine's own K is not planned, and one K for all is the batch's: either may go past
        # a request's end.
        free = plan.mode in ENGINES_OWN or context.capability.level is Level.UNIFORM
        limit = kmax if free else planned[slot]
        _require(verified <= limit, f"{where}: more drafts verified than planned")
        _require(0 <= accepted <= verified, f"{where}: accepted must be within 0..verified")
        _require(0 <= emitted <= accepted + 1, f"{where}: emitted more than accepted + 1")
    least = outcome.batch_size + int(outcome.verified.sum())
    _require(outcome.batch_tokens >= least, f"{where}: batch_tokens below B + verified drafts")
    seconds = outcome.seconds
    _require(not seconds <= 0.0, f"{where}: seconds must be positive, or nan if unknown")


def _check_state(make: Callable[[int], Policy], capability: Capability) -> None:
    policy = make(1)
    _drive(policy, capability)
    state = policy.state()
    try:
        copied = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() must be JSON without NaN: {error}") from error
    fresh = make(1)
    fresh.restore(copied)
    _drive(fresh, capability)


def _check_memory(make: Callable[[int], Policy], capability: Capability) -> None:
    policy = make(1)
    _drive(policy, capability, steps=_STEPS)
    early = len(json.dumps(policy.state()))
    _drive(policy, capability, steps=4 * _STEPS, first=_STEPS)
    late = len(json.dumps(policy.state()))
    _require(late <= 2 * early + 4096, f"state() grew from {early} to {late} bytes")


def _drive(
    policy: Policy,
    capability: Capability,
    *,
    rename: bool = False,
    steps: int = _STEPS,
    first: int = 0,
) -> list[SpecPlan]:
    """Run a policy over made-up batches whose requests come and go."""
    random = np.random.default_rng(3)
    slots = RequestSlots()
    kmax = capability.max_draft_tokens
    alive: list[str] = []
    born = 0
    depth = kmax
    plans: list[SpecPlan] = []
    now = 100.0 + first
    for step in range(first, first + steps):
        while len(alive) < 3 + step % 3:
            alive.append(f"{'other' if rename else 'request'}-{first}-{born}")
            born += 1
        context = _context(step, capability, slots, alive, random, depth, now)
        plan = policy.plan(context)
        fault = plan_fault(plan, context)
        _require(not fault, f"level {capability.level.name}: {fault}")
        plans.append(plan)
        skill = np.array([0.2 + 0.15 * (int(name.rsplit("-", 1)[1]) % 5) for name in alive])
        hits = random.random((len(alive), kmax)) < skill[:, None]
        accepted: IntArray = np.minimum(hits.cumprod(axis=1).sum(axis=1), plan.verify)
        seconds = 0.02 + 0.001 * float(plan.verify.sum()) + 0.001 * plan.draft_depth
        now += seconds
        policy.observe(
            StepOutcome(
                step=step,
                slots=context.slots,
                verified=plan.verify,
                accepted=accepted,
                emitted=accepted + 1,
                batch_size=len(alive),
                batch_tokens=len(alive) + int(plan.verify.sum()),
                context_tokens=int(context.context_tokens.sum()),
                prefill_tokens=0,
                draft_depth=plan.draft_depth,
                ragged=bool(np.ptp(plan.verify) > 0),
                seconds=seconds,
                now=now,
            )
        )
        depth = plan.draft_depth
        if random.random() < 0.2:
            ended = alive.pop(int(random.integers(len(alive))))
            slot = slots.release(ended)
            policy.forget(np.array([slot], dtype=np.int64))
    for name in alive:
        slot = slots.release(name)
        policy.forget(np.array([slot], dtype=np.int64))
    return plans


def _context(
    step: int,
    capability: Capability,
    slots: RequestSlots,
    alive: Sequence[str],
    random: np.random.Generator,
    depth: int,
    now: float,
) -> StepContext:
    batch = len(alive)
    kmax = capability.max_draft_tokens
    remaining = random.integers(0, kmax + 3, batch)
    possible: IntArray = np.minimum(remaining, kmax).astype(np.int64)
    at_hand = depth if capability.level is Level.FULL else kmax
    return StepContext(
        step=step,
        capability=capability,
        request_ids=list(alive),
        slots=np.array([slots.assign(name) for name in alive], dtype=np.int64),
        context_tokens=np.full(batch, 50 + step, dtype=np.int64),
        draft_available=np.minimum(possible, at_hand),
        draft_possible=possible,
        engine_k=kmax,
        tpot_target=np.full(batch, np.inf),
        task=np.full(batch, -1, dtype=np.int64),
        temperature=np.zeros(batch),
        now=now,
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
