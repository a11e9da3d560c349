"""Follows whichever of several policies does best, so that a wrong one cannot hurt for long.

Every member plans every step, in a world in which its own drafting depth was run, and observes
every outcome. Once a step is over each plan is scored, whether it ran or not
(`adaptive_spec.policies.ensemble.hindsight`); Hedge weighs the members by it
(`adaptive_spec.policies.ensemble.hedge`). The loss of a plan is

    (lambda seconds - tokens) / B,    lambda = tokens per second lately,

whose sum falls as the ratio of all tokens to all seconds rises; a mean of ratios would not do.

What all members share, the posterior of acceptance and the cost model, is kept from going blind:
while the leader verifies nothing, or never goes deeper, the ensemble explores by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np

from adaptive_spec.cost.profile import CostProfile, load_profile
from adaptive_spec.errors import PolicyError
from adaptive_spec.kernels import load_kernels
from adaptive_spec.planning.step_forecast import Outlook
from adaptive_spec.policies.ensemble.hedge import Hedge
from adaptive_spec.policies.ensemble.hindsight import tokens_in_hindsight
from adaptive_spec.policies.ensemble.members import (
    Member,
    build_members,
    members_state,
    restore_members,
)
from adaptive_spec.policies.ensemble.options import EnsembleOptions
from adaptive_spec.policies.ensemble.shared import OFF, Shared
from adaptive_spec.policies.stateless import StatelessPolicy
from adaptive_spec.policy import Provenance, State, provenance_of
from adaptive_spec.step import (
    Capability,
    DraftPass,
    DraftVerdict,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_REMEMBERED_STEPS = 8
_RATE_DISCOUNT = 0.98
_SAMPLED_FOR = 16
"""Steps for which a drawn member leads: depth and K belong to neighbouring steps."""
_COLD_AFTER = 256
"""Steps without speculation before the drafter's own pass is left out too: requests that are
alive then cannot be drafted for any more."""


class _Remembered(NamedTuple):
    """What a step has to be scored with."""

    slots: IntArray
    task: IntArray
    plans: IntArray
    """[M, B]"""
    verify_seconds: FloatArray
    """[M] without drafting; inf of a member that is out"""
    passes: IntArray
    """[M] of the drafter; -1 where not even the one that keeps it in step"""
    draft_seconds: FloatArray
    """[Kmax + 1]"""
    signal: FloatArray | None
    """[Kmax, B] what the drafter showed."""
    leader: int
    off_seconds: float
    cold: bool
    """The drafter's own pass is left out."""


class EnsemblePolicy:
    """Runs its members side by side and follows the best."""

    name: ClassVar[str] = "ensemble"
    summary: ClassVar[str] = "follows the best of several policies (option members)"
    Options: ClassVar[type[msgspec.Struct]] = EnsembleOptions

    def __init__(self, options: EnsembleOptions, *, seed: int = 0) -> None:
        load_kernels()
        self._options = options
        self._seed = seed
        self._members = build_members(
            options.members, options.profile, forbidden=EnsemblePolicy, seed=seed
        )
        if any(provenance_of(member.policy).greedy_drafts_only for member in self._members):
            self.provenance = Provenance(greedy_drafts_only=True, faults="those of its members")
        self._hedge = Hedge(
            len(self._members), discount=options.discount, fixed_share=options.fixed_share
        )
        self._profile: CostProfile | None = None
        if options.profile is not None:
            self._profile = load_profile(Path(options.profile))
        self._random = np.random.default_rng([seed, 1])
        self._capability: Capability | None = None
        self._shared: Shared | None = None
        self._restored: State | None = None
        self._ran_depth: int | None = None
        self._leader = 0
        self._drawn_at: int | None = None
        self._off_steps = 0
        self._remembered: dict[int, _Remembered] = {}
        self._tokens = self._seconds = 0.0

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each member, for people and tests."""
        names = [member.name for member in self._members]
        return dict(zip(names, self._hedge.weights.tolist(), strict=True))

    @property
    def faults(self) -> dict[str, str]:
        """Members that are out, and why."""
        return {member.name: member.fault for member in self._members if not member.able}

    # ------------------------------------------------------------------ decide

    def plan(self, context: StepContext) -> SpecPlan:
        """The plan of the member that leads."""
        if self._shared is None:
            self._start(context.capability)
        shared = self._shared
        assert shared is not None
        for member in self._members:
            member.decide(context, self._ran_depth)
        self._drop_failed()
        leader = self._choose(context)
        if context.batch_size == 0 or not shared.cost.ready:
            plan = self._led_by(leader, context)
            if context.batch_size:
                plan = shared.timed(plan, context, None) or plan
            self._ran_depth = plan.draft_depth
            return plan
        outlook = shared.outlook(context)
        off_seconds = outlook.seconds_of(0, 0)
        leader = self._looker(shared, leader, context, off_seconds)
        plan = self._led_by(leader, context)
        plan = shared.timed(plan, context, outlook) or shared.explored(plan, context)
        cold = plan.mode is Mode.OFF_COLD
        plans = np.stack([self._plan_of(each, context.batch_size) for each in self._members])
        self._remembered[context.step] = _Remembered(
            context.slots,
            context.task,
            plans,
            *self._costs(outlook),
            outlook.draft_seconds,
            shared.signal(context),
            leader,
            off_seconds,
            cold,
        )
        while len(self._remembered) > _REMEMBERED_STEPS:
            del self._remembered[next(iter(self._remembered))]
        self._ran_depth = plan.draft_depth
        drafts = int(plan.verify.sum())
        return msgspec.structs.replace(
            plan,
            predicted_tokens=outlook.tokens_of(plan.verify),
            predicted_seconds=outlook.seconds_of(drafts, plan.draft_depth)
            + outlook.prefill_seconds,
        )

    def _choose(self, context: StepContext) -> int:
        able = [number for number, member in enumerate(self._members) if member.able]
        if not able:
            faults = "; ".join(f"{name}: {fault}" for name, fault in self.faults.items())
            raise PolicyError(f"ensemble: every member is out: {faults}")
        if self._options.choice == "sampled":
            due = self._drawn_at is None or context.step - self._drawn_at >= _SAMPLED_FOR
            if due or self._leader not in able:
                self._leader = int(self._random.choice(len(self._members), p=self._hedge.weights))
                self._drawn_at = context.step
        else:
            self._leader = self._hedge.leader
            if self._leader not in able:
                self._leader = self._hedge.leader = int(np.argmax(self._hedge.weights))
        return self._leader

    def _led_by(self, leader: int, context: StepContext) -> SpecPlan:
        """The leader's plan, as far as the drafts at hand go."""
        member = self._members[leader]
        plan = member.plan
        assert plan is not None
        available, verify = context.draft_available, plan.verify
        if context.capability.level is Level.UNIFORM:
            k = int(verify.max(initial=0))
            if verify.size and not (member.available > k).any():
                # It may have meant more than its requests could use.
                k = next((x for x in context.capability.uniform_values if x >= k), k)
            verify = np.minimum(available, k)
        else:
            verify = np.minimum(available, verify)
        mode = plan.mode
        idle = mode in OFF and plan.draft_depth == 0 and not verify.any()
        self._off_steps = self._off_steps + 1 if idle else 0
        # A policy that learns nothing cannot know what coming back would cost.
        naive = isinstance(member.policy, StatelessPolicy)
        if mode is Mode.OFF_COLD and naive and self._off_steps < _COLD_AFTER:
            mode = Mode.OFF_WARM
        propensity = plan.propensity
        if self._options.choice == "sampled" and verify.size:
            same = np.array([self._plan_of(each, context.batch_size) for each in self._members])
            likely = self._hedge.weights @ (np.minimum(same, available) == verify)
            likely = np.minimum(likely, 1.0)  # all weights together may round to more
            propensity = likely if propensity is None else likely * propensity
        return msgspec.structs.replace(
            plan,
            verify=verify,
            mode=mode,
            reason=f"{member.name}: {plan.reason}",
            propensity=propensity,
        )

    def _looker(self, shared: Shared, leader: int, context: StepContext, off_seconds: float) -> int:
        """While the leader does not speculate: a member that looks whether it would pay."""
        plan = self._members[leader].plan
        assert plan is not None
        off = plan.draft_depth == 0 and not plan.verify.any()
        if not context.capability.steers_depth:
            off = not plan.verify.any()
        found = leader
        if off:
            for number, member in enumerate(self._members):
                looks = member.plan is not None and member.plan.mode in OFF
                if looks and member.plan is not None and member.plan.draft_depth > 0:
                    found = number
                    break
        shared.look(
            off=off, member_looks=found != leader, step_seconds=off_seconds, now=context.now
        )
        return found

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        """The leader's verdict; the others are asked as well, so that they can be scored."""
        verdict = DraftVerdict(draft.drafting, draft.drafting)
        for number, member in enumerate(self._members):
            if member.able:
                found = member.after_draft_pass(draft)
                if member.stops_drafting and draft.step in self._remembered:
                    self._remembered[draft.step].passes[number] = member.passes
                if number == self._leader and member.stops_drafting:
                    verdict = found
        return verdict

    # ------------------------------------------------------------------- learn

    def observe(self, outcome: StepOutcome) -> None:
        """Score all members, then let everything learn."""
        for member in self._members:
            member.observe(outcome)
        self._drop_failed()
        if self._shared is None:
            return
        remembered = self._remembered.pop(outcome.step, None)
        task: IntArray | None = None
        signal: FloatArray | None = None
        if remembered is not None and outcome.slots.size and remembered.slots.size:
            order = np.argsort(remembered.slots)
            found = np.searchsorted(remembered.slots, outcome.slots, sorter=order)
            place = order[np.minimum(found, len(order) - 1)]
            if (remembered.slots[place] == outcome.slots).all():
                task = remembered.task[place]
                if remembered.signal is not None:
                    signal = remembered.signal[:, place]
                # Drafts that were left out for their signal must not count as average ones.
                hazard = self._shared.acceptance.hazard(outcome.slots, task, signal)
                self._score(self._shared, remembered, place, outcome, hazard)
        cold = remembered is not None and remembered.cold
        self._shared.learn(outcome, task, signal, cold=cold)

    def _score(
        self,
        shared: Shared,
        remembered: _Remembered,
        place: IntArray,
        outcome: StepOutcome,
        hazard: FloatArray,
    ) -> None:
        tokens = tokens_in_hindsight(
            remembered.plans[:, place], outcome.verified, outcome.accepted, hazard
        )
        passes = remembered.passes
        drafting = np.where(passes < 0, 0.0, remembered.draft_seconds[np.maximum(passes, 0)])
        seconds = remembered.verify_seconds + drafting
        leader = remembered.leader
        self._tokens = _RATE_DISCOUNT * self._tokens + float(tokens[leader])
        self._seconds = _RATE_DISCOUNT * self._seconds + float(seconds[leader])
        if not 0.0 < self._seconds < np.inf:
            self._tokens = self._seconds = 0.0
            return
        rate = self._tokens / self._seconds
        self._hedge.learn((rate * seconds - tokens) / len(outcome.slots))
        measured = outcome.seconds if outcome.seconds > 0.0 else 0.0
        measured -= shared.cost.prefill_seconds(outcome.prefill_tokens)
        emitted = float(outcome.emitted.sum()) / max(outcome.batch_size, 1)
        shared.looking.seen(
            samples=int(np.count_nonzero(outcome.verified)),
            lost_seconds=measured - emitted * remembered.off_seconds,
            now=outcome.now,
            step_seconds=remembered.off_seconds,
        )

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        for member in self._members:
            member.forget(slots)
        self._drop_failed()
        if self._shared is not None:
            self._shared.acceptance.forget(slots)

    # ------------------------------------------------------------------- state

    def state(self) -> State:
        """Weights, the members' states, and what they share."""
        if self._shared is None:
            return self._restored or {}
        profile = self._shared.cost.profile()
        return {
            "schema": 1,
            "members": members_state(self._members),
            "weights": np.maximum(self._hedge.weights, 1e-9).tolist(),
            "acceptance": self._shared.acceptance.state(),
            "profile": None if profile is None else msgspec.to_builtins(profile),
        }

    def restore(self, state: State) -> None:
        """Start from a saved state, of the same members; one that was out begins anew."""
        if not state:
            return
        needed = {"members", "weights", "acceptance", "profile"}
        if state.get("schema") != 1 or not needed <= state.keys():
            raise PolicyError(f"ensemble state: schema 1 with {', '.join(sorted(needed))} expected")
        try:
            weights = np.asarray(state["weights"], dtype=np.float64)
            profile = msgspec.convert(state["profile"], CostProfile | None)
        except (TypeError, ValueError, OverflowError) as error:
            raise PolicyError(f"ensemble state: {error}") from error
        if (
            weights.shape != (len(self._members),)
            or not (np.isfinite(weights) & (weights > 0)).all()
        ):
            raise PolicyError("ensemble state: `weights` must be one positive number per member")
        restore_members(self._members, state["members"])
        self._hedge.restore(weights)
        self._profile = self._profile if profile is None else profile
        self._restored = state
        if self._capability is not None:
            self._start(self._capability)

    # ---------------------------------------------------------------- internals

    def _start(self, capability: Capability) -> None:
        self._capability = capability
        self._shared = Shared(capability, self._profile, self._seed)
        # Last, so that a saved state that doesn't fit is said once and not in every step.
        if self._restored is not None:
            self._shared.acceptance.restore(self._restored["acceptance"])

    def _drop_failed(self) -> None:
        for number, member in enumerate(self._members):
            if member.fault and self._hedge.weights[number] > 0.0:
                self._hedge.remove(number)

    def _plan_of(self, member: Member, batch: int) -> IntArray:
        """[B] K_i; zeros for a member that is out."""
        return np.zeros(batch, dtype=np.int64) if member.plan is None else member.plan.verify

    def _costs(self, outlook: Outlook) -> tuple[FloatArray, IntArray]:
        """[M] seconds of each plan's verification, and [M] passes of its drafting."""
        capability = outlook.context.capability
        seconds = np.full(len(self._members), np.inf)
        passes: IntArray = np.zeros(len(self._members), dtype=np.int64)
        for number, member in enumerate(self._members):
            plan = member.plan
            if plan is None:
                continue
            seconds[number] = outlook.verify_seconds[int(plan.verify.sum())]
            if capability.ragged_penalty > 0.0 and np.ptp(plan.verify) > 0:
                seconds[number] *= 1.0 + capability.ragged_penalty
            if plan.mode is Mode.OFF_COLD:
                passes[number] = -1
            elif capability.steers_depth:
                passes[number] = plan.draft_depth
            else:
                passes[number] = capability.max_draft_tokens
        return seconds, passes
