"""Conformance suites for policies and adapters written elsewhere.

`check_policy` drives a policy through made-up batches; `check_adapter` reads what a real engine's
adapter recorded. Both raise AssertionError with one line that says what the contract asks for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.policy import DraftStopper, Policy, provenance_of
from adaptive_spec.step import Capability, Level, Mode, SpecPlan, StepContext, StepOutcome
from adaptive_spec.testing.edge_cases import check_odd_steps
from adaptive_spec.testing.fake_engine import MadeUpEngine, capabilities
from adaptive_spec.testing.memory_footprint import held_values
from adaptive_spec.testing.noninterference import check_two_worlds

_STEPS = 40
_FILLING_STEPS, _MORE_STEPS, _MOST_PERIODS = 100, 150, 8
"""Of the check for memory: before the first count, between two, and how often at most."""
ENGINES_OWN = (Mode.ENGINE, Mode.SHADOW)


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `check_policy` found of a policy that keeps the contract.

    Attributes:
        exempt: why losslessness with sampled drafts was not checked: the policy says that its rule
            holds for greedy drafts only. Empty if it was.
        rounds: of the losslessness check, all levels together.
        decided_by_signal: of a quarter of them, those in which K follows the drafter's signal.
            0: the policy does not use it live on these engines, or not with these options.
    """

    exempt: str
    rounds: int
    decided_by_signal: int


def check_policy(
    make: Callable[[int], Policy], *, levels: Sequence[Level] = tuple(Level)
) -> PolicyReport:
    """Check that a policy keeps the contract of `adaptive_spec.policy.Policy`.

    Args:
        make: builds the policy from a seed.
        levels: the capability levels it is meant for.

    Checked at each level, without the drafter's signal and with it:

    * plans can run on the engine; same seed, same plans, whatever requests are called;
    * state is JSON and restores;
    * what is held does not grow with the number of finished requests;
    * odd steps raise nothing (`adaptive_spec.testing.edge_cases`);
    * K does not look ahead, so that sampled output keeps its distribution
      (`adaptive_spec.testing.noninterference`; policies with `Provenance.greedy_drafts_only` are
      exempt, and the report says so).

    Raises AssertionError with one line for the first thing that is broken.
    """
    provenance = provenance_of(type(make(0)))
    exempt = ""
    if provenance.greedy_drafts_only:
        exempt = f"for greedy drafts only: {provenance.faults or 'no reason given'}"
    rounds = decided = 0
    for level in levels:
        engines = capabilities(level, stops=isinstance(make(0), DraftStopper))
        _check_repeats(make, engines[0], signal=False)
        for capability in engines:
            _check_repeats(make, capability, signal=True)
            check_odd_steps(lambda: make(2), capability)
        _check_state(make, engines[0])
        _check_memory(make, engines[-1])
        for capability in engines if not exempt else ():
            found = check_two_worlds(make(1), capability)
            rounds += found.rounds
            decided += found.decided_by_signal
    return PolicyReport(exempt=exempt, rounds=rounds, decided_by_signal=decided)


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


def _check_repeats(make: Callable[[int], Policy], capability: Capability, *, signal: bool) -> None:
    level = capability.level.name
    plans = MadeUpEngine(capability, signal=signal).run(make(7), _STEPS)
    renamed = MadeUpEngine(capability, signal=signal, prefix="other").run(make(7), _STEPS)
    if _same(plans, renamed):
        return
    again = MadeUpEngine(capability, signal=signal).run(make(7), _STEPS)
    _require(
        _same(plans, again), f"level {level}: same seed and same history must give the same plans"
    )
    raise AssertionError(f"level {level}: plans must not depend on request names")


def _same(plans: Sequence[SpecPlan], others: Sequence[SpecPlan]) -> bool:
    return all(
        one.verify.tolist() == other.verify.tolist() and one.draft_depth == other.draft_depth
        for one, other in zip(plans, others, strict=True)
    )


def _check_state(make: Callable[[int], Policy], capability: Capability) -> None:
    policy = make(1)
    MadeUpEngine(capability).run(policy, _STEPS)
    try:
        copied = json.loads(json.dumps(policy.state(), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() must be JSON without NaN: {error}") from error
    fresh = make(1)
    fresh.restore(copied)
    MadeUpEngine(capability).run(fresh, _STEPS)


def _check_memory(make: Callable[[int], Policy], capability: Capability) -> None:
    """Neither the state nor the object may hold on to requests that have finished.

    Every request lives for one step. A window of recent steps may fill up; it has to end.
    """
    policy = make(1)
    engine = MadeUpEngine(capability, signal=True)
    held, saved, finished = [], [], []
    for steps in (_FILLING_STEPS, *[_MORE_STEPS] * _MOST_PERIODS):
        engine.run(policy, steps, turnover=1.0)
        finished.append(engine.end(policy))
        held.append(held_values(policy))
        saved.append(len(json.dumps(policy.state())))
        if len(held) == 1:
            continue
        more = finished[-1] - finished[-2]
        grown = held[-1] - held[-2], saved[-1] - saved[-2]
        if grown[0] < more // 2 and grown[1] < more:
            return
    raise AssertionError(
        f"after {more} more requests have finished the policy holds {grown[0]} values more and "
        f"state() is {grown[1]} bytes longer; what belongs to a request must go when `forget` "
        "names its slot"
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
