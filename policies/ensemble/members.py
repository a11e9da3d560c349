"""The members of an ensemble, each in a world in which its own drafting depth was run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.controller.plan_validation import plan_fault
from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.ensemble.options import MemberChoice
from adaptive_spec.policy import DraftStopper, Policy, State, build_policy, policy_class
from adaptive_spec.step import (
    BoolArray,
    DraftPass,
    DraftVerdict,
    IntArray,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_LOG = logging.getLogger(__name__)


class Member:
    """One policy, and what it has planned.

    A member that fails, or plans what cannot run, is out: counted and said once.
    """

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.fault = ""
        self.plan: SpecPlan | None = None
        self.available: IntArray = np.zeros(0, dtype=np.int64)
        """[B] drafts that it would have at hand in the present step."""
        self.passes = 0
        """Of the drafter, before it would have stopped."""
        self._depth: int | None = None
        self._kept: IntArray | None = None
        self._kept_slots: IntArray = np.zeros(0, dtype=np.int64)
        self._going_on: BoolArray = np.zeros(0, dtype=np.bool_)

    @property
    def able(self) -> bool:
        """It has not failed."""
        return not self.fault

    @property
    def stops_drafting(self) -> bool:
        """It wants to see each pass of the drafter."""
        return self.able and isinstance(self.policy, DraftStopper)

    def decide(self, context: StepContext, ran_depth: int | None) -> None:
        """Plan, as if its own depth had been drafted in the step before."""
        if self.fault:
            return
        self.available = self._own_available(context, ran_depth)
        own = msgspec.structs.replace(context, draft_available=self.available)
        self.plan = self._guarded("plan", lambda: self.policy.plan(own))
        if self.plan is not None and (fault := plan_fault(self.plan, own)):
            self._out(fault)
        self._depth = None if self.plan is None else self.plan.draft_depth
        self._kept = None

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        """Its verdict, asked whether it leads or not; where it would have stopped is kept."""
        if draft.position == 0 or self._kept is None:
            self._kept = np.zeros(len(draft.slots), dtype=np.int64)
            self._kept_slots = draft.slots
            self._going_on = np.ones(len(draft.slots), dtype=np.bool_)
            self.passes = 0
        drafting = draft.drafting & self._going_on
        nothing = DraftVerdict(drafting, drafting)
        if self._depth is not None and draft.position >= self._depth:
            stop = np.zeros(len(drafting), dtype=np.bool_)
            self._going_on = stop
            return DraftVerdict(stop, stop)
        if drafting.any():
            self.passes = draft.position + 1
        policy = self.policy
        if self.stops_drafting and isinstance(policy, DraftStopper) and drafting.any():
            own = msgspec.structs.replace(draft, drafting=drafting)
            found = self._guarded("after_draft_pass", lambda: policy.after_draft_pass(own))
            nothing = nothing if found is None else found
        admitted = drafting & nothing.admitted
        self._kept = self._kept + admitted
        self._going_on = admitted & nothing.drafting
        return DraftVerdict(admitted, self._going_on)

    def observe(self, outcome: StepOutcome) -> None:
        """Every member learns from what ran."""
        self._guarded("observe", lambda: self.policy.observe(outcome))

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        self._guarded("forget", lambda: self.policy.forget(slots))

    def _own_available(self, context: StepContext, ran_depth: int | None) -> IntArray:
        if not context.capability.steers_depth or ran_depth is None or self._depth is None:
            return context.draft_available
        possible = np.maximum(context.draft_possible, context.draft_available)
        # Fewer at hand than were drafted: the drafter had no more to propose.
        full = np.minimum(possible, ran_depth)
        limit = np.where(context.draft_available < full, context.draft_available, possible)
        if self._kept is None:
            at_own_depth: IntArray = np.minimum(limit, self._depth)
            return at_own_depth
        kept = dict(zip(self._kept_slots.tolist(), self._kept.tolist(), strict=True))
        own = [kept.get(slot, self._depth) for slot in context.slots.tolist()]
        kept_so_far: IntArray = np.minimum(possible, np.array(own, dtype=np.int64))
        return kept_so_far

    def _guarded(self, what: str, call: Callable[[], Any]) -> Any:
        if not self.able:
            return None
        try:
            return call()
        except Exception as error:
            self._out(f"{what} raised {type(error).__name__}: {error}")
            return None

    def _out(self, fault: str) -> None:
        self.plan = None
        self.fault = fault
        _LOG.warning("adaptive_spec: ensemble: member %s is out: %s", self.name, fault)


def build_members(
    choices: Sequence[str | MemberChoice], profile: str | None, *, forbidden: type, seed: int
) -> list[Member]:
    """Build all; raises PolicyError for one that cannot be built, or is an ensemble itself."""
    members: list[Member] = []
    for number, choice in enumerate(choices):
        name = choice if isinstance(choice, str) else choice.name
        options = {} if isinstance(choice, str) else dict(choice.options)
        try:
            cls = policy_class(name)
            if issubclass(cls, forbidden):
                raise PolicyError("an ensemble cannot be a member of one")
            takes = {field.name for field in msgspec.structs.fields(cls.Options)}
            if profile is not None and "profile" in takes:
                options.setdefault("profile", profile)
            policy = build_policy(name, options, seed=seed + number)
        except PolicyError as error:
            raise PolicyError(f"ensemble: member {number + 1}: {error}") from error
        members.append(Member(f"{number + 1}:{policy.name}", policy))
    return members


def members_state(members: Sequence[Member]) -> list[State]:
    """States by member; that of a failed one is left out."""
    return [
        {"name": member.name, "state": member.policy.state() if member.able else {}}
        for member in members
    ]


def restore_members(members: Sequence[Member], states: Any) -> None:
    """Take up states saved by `members_state`. Raises PolicyError if they do not fit."""
    names = [member.name for member in members]
    if not isinstance(states, list) or not all(isinstance(each, dict) for each in states):
        raise PolicyError("ensemble state: `members` must be a list of objects")
    if [each.get("name") for each in states] != names:
        raise PolicyError(f"ensemble state: it is of other members than {', '.join(names)}")
    for member, saved in zip(members, states, strict=True):
        state = saved.get("state")
        if not isinstance(state, dict):
            raise PolicyError(f"ensemble state: member {member.name} has no `state`")
        member.policy.restore(state)
