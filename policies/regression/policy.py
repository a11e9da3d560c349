"""Hazards fitted offline, corrected online, planned exactly.

`adaptive-spec fit` fits the probability that each draft is accepted to recorded steps, by logistic
regression or gradient boosting, and the step times where they were recorded; the file is evaluated
here in numpy. A discounted correction, c_j by position and u_i by request, follows what the fit
does not know (`adaptive_spec.policies.regression.correction`). From there on it is the default
policy's way: exact planner, learned costs, exploration, OFF with probes.

Where the drafter reports its confidence, drafts are ranked by it, without a bias of sampled
output: how deep to draft, how many drafts to verify at most, and the least survival that a draft
needs are decided from finished steps only; confidences then rank the drafts by survival, best
first, until the number is reached or a survival is below that least one. A draft's survival
depends on the distributions at its own and shallower positions, never on its own token.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.cost import CostModel
from adaptive_spec.cost_profile import CostProfile, load_profile
from adaptive_spec.errors import PolicyError
from adaptive_spec.exploration import FRACTION, FRACTION_OF_NONE, Explorer
from adaptive_spec.latency import LatencyWeights
from adaptive_spec.modes import ModeMachine
from adaptive_spec.planner import best_admission
from adaptive_spec.policies.goodput.cost_probes import CostProbes
from adaptive_spec.policies.goodput.outlook import Outlook
from adaptive_spec.policies.regression.hazards import FittedHazards
from adaptive_spec.policies.regression.live_ranking import rank_live
from adaptive_spec.policies.regression.model_file import default_model, load_model
from adaptive_spec.policy import State
from adaptive_spec.values import (
    Capability,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_LOG = logging.getLogger(__name__)
_EVIDENCE_OF_DEFAULT, _EVIDENCE_OF_FITTED = 4.0, 40.0
"""Fisher information that a model is worth before anything was seen: ours of other models, and
one that was fitted for this server."""
_LEAST_STEPS = 200
"""Steps measured before speculation may stop."""
_REMEMBERED_PLANS = 8


class RegressionOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `regression`."""

    model: str | None = None
    """File made by `adaptive-spec fit`. Absent: the one that comes with the package, which was
    fitted to a small pair of models, so that the correction has more to do."""
    profile: str | None = None
    """File with a cost profile to start from; wins over the step times in the model."""
    tasks: list[str] = []
    """Task labels in the order of the engine's task numbers, for a model that knows labels."""
    discount: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.98
    """How fast a request's own correction is forgotten, per step."""
    confidence: bool = True
    """Rank drafts by the drafter's confidence where it is reported and the model knows it."""
    explore: bool = True
    """Explore deeper drafts and unmeasured K."""
    latency_strength: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Weight of requests that are behind their TPOT target; 0 ignores targets."""


class RegressionPolicy:
    """Maximises expected tokens per second of each step, with fitted hazards."""

    name: ClassVar[str] = "regression"
    summary: ClassVar[str] = "hazards fitted offline (adaptive-spec fit), corrected online"
    Options: ClassVar[type[msgspec.Struct]] = RegressionOptions

    def __init__(self, options: RegressionOptions, *, seed: int = 0) -> None:
        self._options = options
        self._seed = seed
        if options.model is None:
            self._model = default_model()
            _LOG.info(
                "adaptive_spec: regression: no `model` given, so the one that comes with the "
                "package is used; make one of your own with `adaptive-spec fit`"
            )
        else:
            self._model = load_model(options.model)
        self._profile: CostProfile | None = self._model.step_times
        if options.profile is not None:
            self._profile = load_profile(Path(options.profile))
        self._capability: Capability | None = None
        self._restored: State | None = None
        self._latency = LatencyWeights(options.latency_strength)
        self._last_depth: int | None = None
        self._extend_next = False
        self._cold_steps: deque[int] = deque(maxlen=_REMEMBERED_PLANS)

    # ------------------------------------------------------------------ decide

    def plan(self, context: StepContext) -> SpecPlan:
        """Decide K_i for this verification and D for the next drafting."""
        if self._capability is None:
            self._start(context.capability)
        if context.batch_size == 0:
            depth = context.engine_k if self._last_depth is None else self._last_depth
            self._modes.prompts_only(now=context.now)
            if self._modes.probing:
                depth = max(depth, self._explorer.deeper(0))
            return self._plain(context, np.zeros(0, dtype=np.int64), depth, "nothing decodes")
        survival = self._hazards.survival(context)
        if not self._cost.ready:
            verify = np.minimum(context.draft_available, context.engine_k)
            plan = self._plain(context, verify, context.engine_k, "no step measured yet")
            return self._measuring(context, None) or plan
        outlook = self._outlook(context, survival.stale)
        if self._mode(outlook) is not Mode.ON:
            plan = self._plan_off(outlook)
        else:
            plan = self._measuring(context, outlook) or self._plan_on(outlook, survival.live)
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
            advantage=outlook.advantage,
            ready=self._cost.samples >= _LEAST_STEPS or self._profile is not None,
        )
        if mode is Mode.ON and before is not Mode.ON:
            # What was known of acceptance is from before it went OFF.
            self._hazards.widen()
        return mode

    def _outlook(self, context: StepContext, survival: FloatArray) -> Outlook:
        """From finished steps only."""
        weights = self._latency.weights(context)
        # Without prompts: their time is due whatever K is.
        verify_seconds = self._cost.verify_seconds(
            context.batch_size, int(context.context_tokens.sum()), 0
        )
        draft_seconds = self._cost.draft_seconds(context.batch_size)
        best = best_admission(
            survival if weights is None else survival * weights,
            np.ones(context.batch_size) if weights is None else weights,
            context.draft_possible,
            context.draft_available,
            verify_seconds,
            draft_seconds,
            context.capability,
        )
        prefill = self._cost.prefill_seconds(context.prefill_tokens)
        return Outlook(context, survival, weights, verify_seconds, draft_seconds, prefill, best)

    def _plan_on(self, outlook: Outlook, live: FloatArray | None) -> SpecPlan:
        """What the planner wants, ranked by confidence, and now and then one draft more."""
        context, best = outlook.context, outlook.best
        verify, depth, reason = best.verify, best.draft_depth, "planned"
        if live is not None and context.capability.level is not Level.UNIFORM and verify.any():
            weighted = live if outlook.weights is None else live * outlook.weights
            verify = rank_live(weighted, context.draft_available, outlook)
            reason = "ranked by confidence"
        self._last_depth = depth
        propensity: FloatArray | None = None
        if self._options.explore:
            verify = self._explorer.fill_padding(verify, context.draft_available)
            if self._extend_next:
                reason = "exploring one deeper"
                fraction = FRACTION if verify.any() else FRACTION_OF_NONE
                verify, propensity = self._explorer.extend(
                    verify, context.draft_available, fraction
                )
            self._extend_next = self._explorer.due(
                context.step, depth, self._hazards.observations, nobody=not verify.any()
            )
            if self._extend_next:
                depth = self._explorer.deeper(depth)
        return outlook.plan(verify, depth, Mode.ON, reason, propensity)

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
        engine_k = context.engine_k
        k = self._cost_probes.to_verify(context)
        if k is not None:
            verify = np.minimum(context.draft_available, k)
            depth = engine_k if outlook is None else outlook.best.draft_depth
            return self._plain(context, verify, depth, f"measuring K = {k}")
        k = self._cost_probes.to_draft(context, outlook)
        if k is None:
            return None
        verify = (
            np.minimum(context.draft_available, engine_k)
            if outlook is None
            else outlook.best.verify
        )
        return self._plain(context, verify, k, f"drafting {k} to measure it")

    # ------------------------------------------------------------------- learn

    def observe(self, outcome: StepOutcome) -> None:
        """Correct the hazards and learn the step time."""
        if self._capability is None:
            return
        self._hazards.learn(outcome)
        while self._cold_steps and self._cold_steps[0] < outcome.step:
            self._cold_steps.popleft()
        # Where another policy's plan ran instead (`ensemble`), the drafter may have drafted.
        cold = bool(self._cold_steps) and self._cold_steps[0] == outcome.step
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
            self._hazards.forget(slots)
            self._modes.ended(len(slots))
        self._latency.forget(slots)

    # ------------------------------------------------------------------- state

    def state(self) -> State:
        """Corrections and the learned cost profile; the model stays in its file."""
        if self._capability is None:
            return self._restored or {}
        profile = self._cost.profile()
        return {
            "schema": 1,
            "corrections": self._hazards.state(),
            "profile": None if profile is None else msgspec.to_builtins(profile),
        }

    def restore(self, state: State) -> None:
        """Start from a saved state; its Kmax must be the engine's."""
        if not state:
            return
        if state.get("schema") != 1 or "corrections" not in state:
            raise PolicyError(
                "regression state: schema 1 with `corrections` and `profile` expected"
            )
        try:
            if state.get("profile") is not None:
                self._profile = msgspec.convert(state["profile"], CostProfile)
        except (msgspec.ValidationError, ValueError) as error:
            raise PolicyError(f"regression state: profile: {error}") from error
        self._restored = state
        if self._capability is not None:
            self._start(self._capability)

    # ---------------------------------------------------------------- internals

    def _start(self, capability: Capability) -> None:
        self._capability = capability
        model, options = self._model, self._options
        if not options.confidence:
            model = msgspec.structs.replace(model, drafts=None)
        fitted = options.model is not None
        self._hazards = FittedHazards(
            model,
            capability.max_draft_tokens,
            tasks=options.tasks,
            discount=options.discount,
            first_evidence=_EVIDENCE_OF_FITTED if fitted else _EVIDENCE_OF_DEFAULT,
        )
        self._cost = CostModel(capability, self._profile)
        self._cost_probes = CostProbes(self._cost)
        self._explorer = Explorer(capability, self._seed)
        self._modes = ModeMachine(capability)
        # Last, so that a saved state that doesn't fit is said once and not in every step.
        if self._restored is not None:
            self._hazards.restore(self._restored["corrections"])

    def _plain(self, context: StepContext, verify: IntArray, depth: int, reason: str) -> SpecPlan:
        """A plan without a prediction."""
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=depth,
            mode=self._modes.plan_mode,
            reason=reason,
        )
