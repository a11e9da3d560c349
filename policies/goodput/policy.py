"""`goodput`: verify what maximises expected tokens per second, learned online.

Each step: survival s_ij from the acceptance model (`adaptive_spec.acceptance`), step times from
the cost model (`adaptive_spec.cost`), the exact maximiser of their ratio
(`adaptive_spec.planner`), exploration against lock-in (`adaptive_spec.exploration`), and OFF with
probes when nothing is to be gained (`adaptive_spec.modes`). Where the engine tells the drafter's
confidence, drafts are admitted by it at prices the planner has set
(`adaptive_spec.policies.goodput.live`).

Apart from that, everything a decision uses comes from finished rounds, so outputs keep their
distribution however drafts are sampled.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.acceptance import AcceptanceModel
from adaptive_spec.change import ChangeDetector
from adaptive_spec.cost import CostModel
from adaptive_spec.cost_profile import CostProfile, load_profile
from adaptive_spec.errors import PolicyError
from adaptive_spec.exploration import FRACTION, FRACTION_OF_NONE, LATE_PERIOD, Explorer
from adaptive_spec.latency import LatencyWeights
from adaptive_spec.modes import ModeMachine
from adaptive_spec.planner import best_admission
from adaptive_spec.policies.goodput.cost_probes import CostProbes
from adaptive_spec.policies.goodput.live import LiveAdmission
from adaptive_spec.policies.goodput.options import GoodputOptions
from adaptive_spec.policies.goodput.outlook import Outlook
from adaptive_spec.policies.goodput.step_memory import StepMemory
from adaptive_spec.policy import State
from adaptive_spec.tpot_cap import TpotTargets
from adaptive_spec.values import (
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

_COLD_STEPS = 8
_LEAST_STEPS, _ENOUGH_STEPS = 60, 200
"""Steps measured before speculation may stop."""


class GoodputPolicy:
    """Maximises expected tokens per second of each step."""

    name: ClassVar[str] = "goodput"
    summary: ClassVar[str] = "most expected tokens per second, learned online (default)"
    Options: ClassVar[type[msgspec.Struct]] = GoodputOptions

    def __init__(self, options: GoodputOptions, *, seed: int = 0) -> None:
        self._options = options
        self._seed = seed
        self._profile: CostProfile | None = None
        if options.profile is not None:
            self._profile = load_profile(Path(options.profile))
        self._capability: Capability | None = None
        self._restored: State | None = None
        self._latency = LatencyWeights(options.latency_strength)
        self._last_depth: int | None = None
        self._extend_next = False
        self._cold_steps: deque[int] = deque(maxlen=_COLD_STEPS)
        self._memory = StepMemory()

    # ------------------------------------------------------------------ decide

    def plan(self, context: StepContext) -> SpecPlan:
        """Decide K_i for this verification and D for the next drafting."""
        if self._capability is None:
            self._start(context.capability)
        if context.batch_size == 0:
            # Requests whose prompt ends in this step are drafted for as the others were.
            depth = context.engine_k if self._last_depth is None else self._last_depth
            self._modes.prompts_only(now=context.now)
            if self._modes.probing:
                depth = max(depth, self._explorer.deeper(0))
            return self._plain(context, np.zeros(0, dtype=np.int64), depth, "nothing decodes")
        if not self._cost.ready:
            verify = np.minimum(context.draft_available, context.engine_k)
            plan = self._plain(context, verify, context.engine_k, "no step measured yet")
            return self._measuring(context, None) or plan
        signal = self._signal(context)
        self._memory.keep(context, signal)
        outlook = self._outlook(context)
        plan = self._plan_in(self._mode(outlook), outlook, signal)
        if plan.predicted_seconds > 0.0:
            seconds = plan.predicted_seconds - outlook.prefill_seconds
            self._modes.ran(seconds=seconds, tokens=plan.predicted_tokens)
        if self._modes.cold:
            self._cold_steps.append(context.step)
        return plan

    def _mode(self, outlook: Outlook) -> Mode:
        """Is this step to speculate?"""
        context, before = outlook.context, self._modes.mode
        mode = self._modes.step(
            batch_size=context.batch_size,
            off_seconds=outlook.off_seconds,
            warm_seconds=outlook.warm_seconds,
            prospect=outlook.prospect,
            prompts=context.prefill_tokens > 0,
            now=context.now,
            advantage=0.0 if self._modes.mode is Mode.ON else outlook.advantage,
            ready=self._knows_enough(context.batch_size),
        )
        if mode is Mode.ON and before is not Mode.ON and self._modes.back_by_probe:
            # What was known of acceptance is from before it went OFF.
            self._acceptance.widen()
        return mode

    def _knows_enough(self, batch_size: int) -> bool:
        """Step times are known well enough to stop speculating because of them."""
        cost = self._cost
        if self._profile is not None or cost.samples >= _ENOUGH_STEPS:
            return True
        return cost.samples >= _LEAST_STEPS and not cost.missing_depths(batch_size)

    def _plan_in(self, mode: Mode, outlook: Outlook, signal: FloatArray | None) -> SpecPlan:
        context = outlook.context
        if mode is not Mode.ON:
            return self._plan_off(outlook)
        measuring = self._measuring(context, outlook)
        if measuring is not None:
            return measuring
        if signal is not None and self._live.useful:
            self._memory.keep(context, signal, outlook.best.goodput)
        return self._plan_on(outlook, signal)

    def _outlook(self, context: StepContext) -> Outlook:
        survival = self._acceptance.survival(context.slots, context.task)
        weights = self._latency.weights(context)
        # Prompts in the step are left out: their time is due whatever K is, and counted in a
        # ratio of this step alone it would make drafts look cheap.
        verify_seconds = self._cost.verify_seconds(
            context.batch_size, int(context.context_tokens.sum()), 0
        )
        draft_seconds = self._cost.draft_seconds(context.batch_size)
        values, optional = survival, self._live_level and self._live.useful
        if optional:
            values = survival + self._live.option_value[:, None]
            np.minimum(np.minimum.accumulate(values, axis=0, out=values), 1.0, out=values)
        best = best_admission(
            values if weights is None else values * weights,
            np.ones(context.batch_size) if weights is None else weights,
            context.draft_possible,
            context.draft_available,
            verify_seconds,
            draft_seconds,
            self._planned_for,
            tpot=self._tpot_targets(context, survival),
        )
        prefill_seconds = self._cost.prefill_seconds(context.prefill_tokens)
        return Outlook(
            context,
            survival,
            weights,
            verify_seconds,
            draft_seconds,
            prefill_seconds,
            best,
            unweighted=weights is None and not optional,
        )

    def _tpot_targets(self, context: StepContext, survival: FloatArray) -> TpotTargets | None:
        if not self._options.tpot_constraint:
            return None
        if not context.tpot_target.min(initial=np.inf) < np.inf:
            return None
        return TpotTargets(survival, context.tpot_target)

    def _signal(self, context: StepContext) -> FloatArray | None:
        """What the drafter showed for the drafts at hand, [Kmax, B]."""
        if context.confidence is None or not self._options.confidence:
            return None
        signal = self._acceptance.confidence.signal(context.confidence)
        shown = self._live.shown()
        self._acceptance.confidence.see(signal if shown is None else shown)
        return signal

    def _plan_on(self, outlook: Outlook, signal: FloatArray | None) -> SpecPlan:
        """What the planner wants, what confidence admits of it, and now and then one more."""
        context, best = outlook.context, outlook.best
        verify, depth, reason = best.verify, best.draft_depth, "planned"
        tokens = expected_depth = None
        stops = False
        if signal is not None and self._live_level and self._live.useful and depth:
            stops, reason = context.capability.stops_drafting, "admitted by confidence"
            verify, tokens = self._live.admit(outlook, signal, drafted_by_it=stops)
            if stops:
                depth = context.capability.max_draft_tokens
                expected_depth = round(self._live.mean_depth)
        if signal is not None:
            self._live.set_prices(outlook)
        self._last_depth = depth
        propensity: FloatArray | None = None
        if self._options.explore:
            if not stops:
                verify = self._explorer.fill_padding(verify, context.draft_available)
                if self._extend_next:
                    reason = "exploring one deeper"
                    fraction = FRACTION if verify.any() else FRACTION_OF_NONE
                    verify, propensity = self._explorer.extend(
                        verify, context.draft_available, fraction
                    )
            if stops:
                # Confident requests go deep by themselves; this is against a prejudice.
                self._extend_next = context.step % LATE_PERIOD == 0
            else:
                self._extend_next = self._explorer.due(
                    context.step, depth, self._acceptance.observations, nobody=not verify.any()
                )
                if self._extend_next:
                    depth = self._explorer.deeper(depth)
        return outlook.plan(
            verify,
            depth,
            Mode.ON,
            reason,
            propensity,
            tokens=tokens,
            expected_depth=expected_depth,
        )

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        """Keep this position, and go on to the next? By confidence, at the planner's prices."""
        unused = self._capability is None or not self._options.confidence
        if unused or self._cost_probes.pending or self._modes.mode is not Mode.ON:
            return DraftVerdict(draft.drafting, draft.drafting)
        extend = None
        if draft.position == 0 and self._extend_next:
            extend = self._explorer.draw(len(draft.slots), FRACTION)
        return self._live.after_pass(draft, extend)

    def _plan_off(self, outlook: Outlook) -> SpecPlan:
        """K = 0 for all; while probing, one draft for a few."""
        context, modes = outlook.context, self._modes
        self._cost_probes.drop()
        self._extend_next = False
        self._last_depth = 0
        if not modes.probing:
            none: IntArray = np.zeros(context.batch_size, dtype=np.int64)
            return outlook.plan(none, 0, modes.plan_mode, "speculation does not pay")
        verify, propensity = self._explorer.some(context.draft_available, modes.probe_requests)
        depth = self._explorer.deeper(0)
        return outlook.plan(verify, depth, modes.plan_mode, "probing", propensity)

    def _measuring(self, context: StepContext, outlook: Outlook | None) -> SpecPlan | None:
        """Run a K that this load has not been timed with, if there is one that may be worth it."""
        if not self._options.explore:
            return None
        engine_depth = context.engine_k
        k = self._cost_probes.to_verify(context)
        if k is not None:
            verify = np.minimum(context.draft_available, k)
            depth = engine_depth if outlook is None else outlook.best.draft_depth
            return self._plain(context, verify, depth, f"measuring K = {k}")
        k = self._cost_probes.to_draft(context, outlook)
        if k is None:
            return None
        if outlook is None:
            verify = np.minimum(context.draft_available, engine_depth)
        else:
            verify = outlook.best.verify
        return self._plain(context, verify, k, f"drafting {k} to measure it")

    # ------------------------------------------------------------------- learn

    def observe(self, outcome: StepOutcome) -> None:
        """Learn acceptance and step time from a finished step."""
        if self._capability is None:
            return
        self._learn_acceptance(outcome)
        while self._cold_steps and self._cold_steps[0] < outcome.step:
            self._cold_steps.popleft()
        cold = bool(self._cold_steps) and self._cold_steps[0] == outcome.step
        # Under an ensemble another plan may have run.
        cold = cold and outcome.draft_depth == 0
        self._cost.learn(outcome, cold=cold)
        self._latency.emitted(outcome.slots, outcome.emitted)
        self._modes.scored(
            samples=int(np.count_nonzero(outcome.verified)),
            accepted=int(np.count_nonzero(outcome.accepted)),
        )

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        if self._capability is not None:
            self._acceptance.forget(slots)
            self._modes.ended(len(slots))
        self._latency.forget(slots)

    # ------------------------------------------------------------------- state

    def state(self) -> State:
        """Acceptance by position and the learned cost profile."""
        if self._capability is None:
            return self._restored or {}
        profile = self._cost.profile()
        return {
            "schema": 1,
            "acceptance": self._acceptance.state(),
            "profile": None if profile is None else msgspec.to_builtins(profile),
        }

    def restore(self, state: State) -> None:
        """Start from a saved state; its Kmax must be the engine's."""
        if not state:
            return
        if state.get("schema") != 1 or "acceptance" not in state:
            raise PolicyError("goodput state: schema 1 with `acceptance` and `profile` expected")
        try:
            if state.get("profile") is not None:
                self._profile = msgspec.convert(state["profile"], CostProfile)
        except (msgspec.ValidationError, ValueError) as error:
            raise PolicyError(f"goodput state: profile: {error}") from error
        self._restored = state
        if self._capability is not None:
            self._start(self._capability)

    # ---------------------------------------------------------------- internals

    def _start(self, capability: Capability) -> None:
        self._capability = capability
        self._acceptance = AcceptanceModel(
            capability.max_draft_tokens,
            prior_hazard=self._options.prior_hazard,
            discount=self._options.discount,
            request_effects=self._options.request_effects,
        )
        self._change = ChangeDetector()
        self._live = LiveAdmission(self._acceptance)
        self._live_level = capability.level is not Level.UNIFORM
        self._planned_for = capability
        if not self._options.graph_choice:
            self._planned_for = msgspec.structs.replace(
                capability, ragged_penalty=0.0, token_buckets=()
            )
        self._cost = CostModel(self._planned_for, self._profile)
        self._cost_probes = CostProbes(self._cost)
        self._explorer = Explorer(self._planned_for, self._seed)
        self._modes = ModeMachine(
            capability, fixed_interval=None if self._options.probe_law else 10.0
        )
        # Last, so that a saved state that doesn't fit is said once and not in every step.
        restored, self._restored = self._restored, None
        if restored is not None:
            self._acceptance.restore(restored["acceptance"])

    def _learn_acceptance(self, outcome: StepOutcome) -> None:
        task, signal = None, None
        planned = self._memory.take(outcome.step, outcome.slots)
        if planned is not None:
            task, signal = planned.task, planned.signal
            self._learn_prices(outcome, planned.goodput)
        model = self._acceptance
        model.learn(outcome.slots, outcome.verified, outcome.accepted, task, signal)
        if not self._options.change_detection:
            return
        if self._change.observe(model.surprise, model.expected_variance, model.observed):
            model.widen()
            self._modes.acceptance_changed()

    def _learn_prices(self, outcome: StepOutcome, planned_goodput: float) -> None:
        seconds = outcome.seconds - self._cost.prefill_seconds(outcome.prefill_tokens)
        if planned_goodput > 0.0 and seconds > 0.0:
            goodput = float(outcome.emitted.sum()) / seconds
            self._live.reached(goodput, planned_goodput, outcome.draft_depth)

    def _plain(self, context: StepContext, verify: IntArray, depth: int, reason: str) -> SpecPlan:
        """A plan without a prediction."""
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=depth,
            mode=self._modes.plan_mode,
            reason=reason,
        )
