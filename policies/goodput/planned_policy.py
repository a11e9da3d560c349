"""A policy that plans each step exactly, from hazards that a subclass knows how to learn.

Each step: survival s_ij from the hazards, step times from the cost model
(`adaptive_spec.cost.model`), the exact maximiser of their ratio (`adaptive_spec.planning.planner`),
exploration against lock-in, and OFF with probes when nothing is to be gained
(`adaptive_spec.planning.on_off.modes`). `goodput` and `regression` are this with different hazards,
and with different uses of the drafter's confidence.
"""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from adaptive_spec.cost.model import CostModel
from adaptive_spec.cost.profile import CostProfile, load_profile
from adaptive_spec.errors import PolicyError
from adaptive_spec.kernels import load_kernels
from adaptive_spec.planning.cost_probes import CostProbes
from adaptive_spec.planning.exploration import Explorer
from adaptive_spec.planning.exploration_plans import Exploring, engine_verify, unpredicted
from adaptive_spec.planning.on_off.modes import ModeMachine
from adaptive_spec.planning.planner import Admission, best_admission
from adaptive_spec.planning.step_forecast import Outlook
from adaptive_spec.planning.switching import Switching
from adaptive_spec.planning.throughput_weights import token_worth
from adaptive_spec.planning.tpot_constraint import TpotTargets
from adaptive_spec.planning.tpot_weights import LatencyWeights
from adaptive_spec.policies.goodput.contract import Hazards, PlannedOptions
from adaptive_spec.policy import State
from adaptive_spec.step import (
    Capability,
    FloatArray,
    IntArray,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_Seen = TypeVar("_Seen")
"""What a subclass took up of a step's context before planning it."""


class PlannedPolicy(abc.ABC, Generic[_Seen]):
    """Maximises expected tokens per second of each step.

    Args:
        options: of the policy.
        profile: to start the cost model from.
        seed: of the exploration.
        graph_choice: weigh the slower graph of a ragged batch, and the padding of captured sizes.
        probe_seconds: between probes while off; None: by the law of
            `adaptive_spec.planning.on_off.modes`.
        by_worth: tokens of requests that accept much count for less
            (`adaptive_spec.planning.throughput_weights`).
    """

    name: ClassVar[str]
    _saved_as: ClassVar[str]
    """Where a saved state holds the hazards."""
    _hazards: Hazards
    _planned_for: Capability
    """What the planner is told of the engine."""
    _cost: CostModel
    _modes: ModeMachine
    _switching: Switching
    _exploring: Exploring

    def __init__(
        self,
        options: PlannedOptions,
        profile: CostProfile | None,
        seed: int,
        *,
        graph_choice: bool = True,
        probe_seconds: float | None = None,
        by_worth: bool = False,
    ) -> None:
        self._explores = options.explore
        self._profile = profile if options.profile is None else load_profile(Path(options.profile))
        self._seed = seed
        self._graph_choice = graph_choice
        self._probe_seconds = probe_seconds
        self._by_worth = by_worth
        self._latency = LatencyWeights(options.latency_strength)
        load_kernels()
        self._capability: Capability | None = None
        self._restored: State | None = None
        self._last_depth: int | None = None

    # ------------------------------------------------------------ of a subclass

    @abc.abstractmethod
    def _make_hazards(self, capability: Capability) -> Hazards:
        """The hazards, and what else goes by the engine."""

    def _check_hazards(self, saved: Any) -> None:
        """Raise PolicyError if these saved hazards fit no engine at all."""

    @abc.abstractmethod
    def _see(self, context: StepContext) -> _Seen:
        """Take up a step that decodes, before anything is decided about it."""

    @abc.abstractmethod
    def _expect(self, context: StepContext, seen: _Seen) -> Outlook:
        """What the step promises, from finished steps only; see `_outlook`."""

    @abc.abstractmethod
    def _plan_on(self, outlook: Outlook, seen: _Seen) -> SpecPlan:
        """The plan of a step that speculates. Sets `_last_depth`."""

    @abc.abstractmethod
    def _learn(self, outcome: StepOutcome) -> None:
        """Learn acceptance from a finished step."""

    # ------------------------------------------------------------------- decide

    def plan(self, context: StepContext) -> SpecPlan:
        """Decide K_i for this verification and D for the next drafting."""
        if self._capability is None:
            self._start(context.capability)
        if context.batch_size == 0:
            return self._plan_prompts(context)
        seen = self._see(context)
        if not self._cost.ready:
            depth, reason = context.engine_k, "no step measured yet"
            timed = self._exploring.timed(context, None)
            return timed or unpredicted(context, engine_verify(context), depth, Mode.ON, reason)
        outlook = self._expect(context, seen)
        mode, by_probe = self._switching.decide(outlook)
        if by_probe:
            self._hazards.widen()
        if mode is not Mode.ON:
            self._last_depth = 0
            plan = self._exploring.while_off(outlook, self._modes)
        else:
            plan = self._exploring.timed(context, outlook) or self._plan_on(outlook, seen)
        self._switching.planned(plan, outlook)
        return plan

    def _plan_prompts(self, context: StepContext) -> SpecPlan:
        """Requests whose prompt ends in this step are drafted for as the others were."""
        modes = self._modes
        depth = context.engine_k if self._last_depth is None else self._last_depth
        modes.prompts_only(now=context.now)
        if modes.probing:
            depth = max(depth, self._exploring.probe_depth)
        nobody: IntArray = np.zeros(0, dtype=np.int64)
        return unpredicted(context, nobody, depth, modes.plan_mode, "nothing decodes")

    def _outlook(
        self,
        context: StepContext,
        survival: FloatArray,
        *,
        option_value: FloatArray | None = None,
        tpot: TpotTargets | None = None,
    ) -> Outlook:
        """What a step with this survival [Kmax, B] promises.

        Args:
            context: the step.
            survival: from finished steps.
            option_value: [Kmax, B] what drafts are worth besides, because they can be
                left out once more is known.
            tpot: targets that the plan has to keep.
        """
        weights = self._latency.weights(context)
        # Prompts in the step are left out: their time is due whatever K is, and counted in a
        # ratio of this step alone it would make drafts look cheap.
        verify_seconds = self._cost.verify_seconds(
            context.batch_size, int(context.context_tokens.sum()), 0
        )
        draft_seconds = self._cost.draft_seconds(context.batch_size)
        values = survival
        if option_value is not None:
            values = survival + option_value
            np.minimum(np.minimum.accumulate(values, axis=0, out=values), 1.0, out=values)

        def admission(weights: FloatArray | None) -> Admission:
            return best_admission(
                values if weights is None else values * weights,
                weights,
                context.draft_possible,
                context.draft_available,
                verify_seconds,
                draft_seconds,
                self._planned_for,
                tpot=tpot,
            )

        best: Admission | None = None
        if self._by_worth and context.batch_size > 1:
            worth = token_worth(survival, verify_seconds, draft_seconds, context.capability)
            worth = worth if weights is None else worth * weights
            best = admission(worth)
            # Whether to speculate at all is asked of the step itself: what all requests share isn't
            # there to first order.
            if best.verify.any() or (best.draft_depth and context.capability.steers_depth):
                weights = worth
            else:
                best = None
        if best is None:
            best = admission(weights)
        return Outlook(
            context,
            survival,
            weights,
            verify_seconds,
            draft_seconds,
            self._cost.prefill_seconds(context.prefill_tokens),
            best,
            unweighted=weights is None and option_value is None,
        )

    # -------------------------------------------------------------------- learn

    def observe(self, outcome: StepOutcome) -> None:
        """Learn acceptance and step time from a finished step."""
        if self._capability is None:
            return
        self._learn(outcome)
        self._switching.learn(outcome)
        self._latency.emitted(outcome.slots, outcome.emitted)

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        if self._capability is not None:
            self._hazards.forget(slots)
            self._modes.ended(len(slots))
        self._latency.forget(slots)

    # -------------------------------------------------------------------- state

    def state(self) -> State:
        """What was learned of acceptance, and the learned cost profile."""
        if self._capability is None:
            return self._restored or {}
        profile = self._cost.profile()
        return {
            "schema": 1,
            self._saved_as: self._hazards.state(),
            "profile": None if profile is None else msgspec.to_builtins(profile),
        }

    def restore(self, state: State) -> None:
        """Start from a saved state; its Kmax must be the engine's."""
        if not state:
            return
        if state.get("schema") != 1 or self._saved_as not in state:
            needed = f"schema 1 with `{self._saved_as}` and `profile`"
            raise PolicyError(f"{self.name} state: {needed} expected")
        profile = self._profile
        try:
            if state.get("profile") is not None:
                profile = msgspec.convert(state["profile"], CostProfile)
        except (msgspec.ValidationError, ValueError) as error:
            raise PolicyError(f"{self.name} state: profile: {error}") from error
        self._check_hazards(state[self._saved_as])
        self._profile, self._restored = profile, state
        if self._capability is not None:
            self._start(self._capability)

    def _start(self, capability: Capability) -> None:
        self._capability = self._planned_for = capability
        if not self._graph_choice:
            self._planned_for = msgspec.structs.replace(
                capability, ragged_penalty=0.0, token_buckets=()
            )
        self._hazards = self._make_hazards(capability)
        self._cost = CostModel(self._planned_for, self._profile)
        self._modes = ModeMachine(capability, fixed_interval=self._probe_seconds)
        self._switching = Switching(self._modes, self._cost, profiled=self._profile is not None)
        self._exploring = Exploring(
            Explorer(self._planned_for, self._seed), CostProbes(self._cost), enabled=self._explores
        )
        # Last, so that a saved state that doesn't fit is said once and not in every step.
        restored, self._restored = self._restored, None
        if restored is not None:
            self._hazards.restore(restored[self._saved_as])
