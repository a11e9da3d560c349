"""Where drafts would have broken even for a recorded server, by a policy that learned from it."""

from __future__ import annotations

import msgspec

from adaptive_spec.errors import DataError
from adaptive_spec.policies.optional.break_even import BreakEven
from adaptive_spec.sim.explained_policy import ExplainedPolicy
from adaptive_spec.sim.logged_steps import LoggedTrace, learn_step
from adaptive_spec.sim.policy_choice import PolicyChoice
from adaptive_spec.sim.step_trace import Source


def break_even(source: Source, choice: PolicyChoice, seed: int = 0) -> BreakEven:
    """Return the table of a policy that has learned the whole trace.

    Raises DataError or PolicyError naming the fault.
    """
    policy = choice.build(seed)
    if not isinstance(policy, ExplainedPolicy):
        raise DataError(f"policy {choice.text!r} has no model of step times; try goodput")
    trace = LoggedTrace(source)
    for logged in trace.steps():
        learn_step(policy, policy.plan(logged.context), logged)
    found = policy.break_even()
    if not found:
        raise DataError(f"{trace.directory}: too few steps to learn step times from")
    table = msgspec.convert(found, BreakEven, strict=False)
    return msgspec.structs.replace(table, now=table.most)
