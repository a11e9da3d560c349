"""Conformance suites for third-party policies and adapters.

`check_policy` drives a policy through fake batches; `check_adapter` reads the records of a real
engine's adapter. Both raise AssertionError with one line that states the violated rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.policy import Policy, provenance_of
from adaptive_spec.step import Capability, Level, Mode, SpecPlan, StepContext, StepOutcome
from adaptive_spec.testing.edge_cases import check_edge_cases
from adaptive_spec.testing.fake_engine import FakeEngine, capabilities
from adaptive_spec.testing.memory_footprint import memory_footprint
from adaptive_spec.testing.noninterference import check_noninterference

_STEPS = 40
_FILLING_STEPS, _MORE_STEPS, _MOST_PERIODS = 100, 150, 8
"""Memory check (steps): warm-up before the first count, steps between two counts; most counts."""
ENGINES_OWN = (Mode.ENGINE, Mode.SHADOW)


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of `check_policy` on a conforming policy.

    Attributes:
        exempt: reason to skip the losslessness check: the policy declares its rule for greedy
            drafts only. Empty if the check ran.
        rounds: rounds of the losslessness check, all levels together.
        decided_by_signal: rounds, among a quarter of them, in which K depends on the drafter's
            signal. 0: the policy does not use the signal live on these engines or with these
            options.
        levels: capability levels checked.
        steps: steps planned by the check of plans.
    """

    exempt: str
    rounds: int
    decided_by_signal: int
    levels: int = 0
    steps: int = 0

    def __str__(self) -> str:
        """Return the findings in one line."""
        lossless = (
            f"output not checked ({self.exempt})"
            if self.exempt
            else f"output unbiased in {self.rounds:,} rounds"
        )
        signal = f", K follows the drafter's signal in {self.decided_by_signal:,} rounds"
        return (
            f"ok: {self.levels} levels, {self.steps:,} steps, same seed same plans, state "
            f"restored, memory bounded, {lossless}{signal if self.decided_by_signal else ''}"
        )


def check_policy(
    make: Callable[[int], Policy], *, levels: Sequence[Level] = tuple(Level)
) -> PolicyReport:
    """Check that a policy keeps the contract of `adaptive_spec.policy.Policy`.

    Args:
        make: builds a policy from a seed.
        levels: capability levels that the policy supports.

    Checks at each level, without the drafter's signal and with it:

    * plans can run on the engine; the same seed gives the same plans, whatever the request names;
    * state is JSON and can be restored;
    * memory does not grow with the number of finished requests;
    * edge cases raise nothing (`adaptive_spec.testing.edge_cases`);
    * K does not look ahead, so that sampled output keeps its distribution
      (`adaptive_spec.testing.noninterference`; the report names policies with
      `Provenance.greedy_drafts_only` as exempt).

    Raises AssertionError with one line for the first violation.
    """
    provenance = provenance_of(type(make(0)))
    exempt = ""
    if provenance.greedy_drafts_only:
        exempt = f"for greedy drafts only: {provenance.faults or 'no reason given'}"
    rounds = decided = steps = 0
    for level in levels:
        engines = capabilities(level)
        _check_repeats(make, engines[0], signal=False)
        for capability in engines:
            _check_repeats(make, capability, signal=True)
            check_edge_cases(lambda: make(2), capability)
            steps += _STEPS
        _check_state(make, engines[0])
        _check_memory(make, engines[-1])
        for capability in engines if not exempt else ():
            found = check_noninterference(make(1), capability)
            rounds += found.rounds
            decided += found.decided_by_signal
    return PolicyReport(
        exempt=exempt,
        rounds=rounds,
        decided_by_signal=decided,
        levels=len(levels),
        steps=steps,
    )


def check_adapter(
    steps: Iterable[tuple[StepContext, SpecPlan, StepOutcome | None]], *, live_requests: int = 0
) -> None:
    """Check an adapter's records of a real engine's run.

    Args:
        steps: context, plan and outcome of every step in order; None for a missing outcome.
        live_requests: requests that the controller still holds after all have ended; must be 0.

    Checks: steps ascend; arrays are C-contiguous int64; slots are distinct within a batch;
    available drafts are within 0..Kmax and within the depth drafted in the step before; verified
    drafts do not exceed the plan (up to Kmax where the engine's own K ran); accepted and emitted
    tokens are possible; batch tokens are at least B + verified drafts (padding); ended requests are
    released.
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
                f"{where}: more drafts available than were drafted",
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
        # The plan does not cover the engine's own K, and a uniform K may exceed a request's limit.
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
    plans = FakeEngine(capability, signal=signal).run(make(7), _STEPS)
    renamed = FakeEngine(capability, signal=signal, prefix="other").run(make(7), _STEPS)
    if _same(plans, renamed):
        return
    again = FakeEngine(capability, signal=signal).run(make(7), _STEPS)
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
    FakeEngine(capability).run(policy, _STEPS)
    try:
        copied = json.loads(json.dumps(policy.state(), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() must be JSON without NaN: {error}") from error
    fresh = make(1)
    fresh.restore(copied)
    FakeEngine(capability).run(fresh, _STEPS)


def _check_memory(make: Callable[[int], Policy], capability: Capability) -> None:
    """Check that neither state nor object retains finished requests.

    Every request lives for one step. A window of recent steps may fill up, but must be bounded.
    """
    policy = make(1)
    engine = FakeEngine(capability, signal=True)
    held, saved, finished = [], [], []
    for steps in (_FILLING_STEPS, *[_MORE_STEPS] * _MOST_PERIODS):
        engine.run(policy, steps, turnover=1.0)
        finished.append(engine.end(policy))
        held.append(memory_footprint(policy))
        saved.append(len(json.dumps(policy.state())))
        if len(held) == 1:
            continue
        more = finished[-1] - finished[-2]
        grown = held[-1] - held[-2], saved[-1] - saved[-2]
        if grown[0] < more // 2 and grown[1] < more:
            return
    raise AssertionError(
        f"after {more} more requests have finished the policy holds {grown[0]} values more and "
        f"state() is {grown[1]} bytes longer; `forget` must drop the state of the slots it is given"
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
