"""A policy that plans each step exactly, from acceptance that it is given a model of.

One step, read top to bottom:

1. predict: `Acceptance.predict_drafts` says how probable it is that each draft is accepted;
2. forecast: tokens and seconds of every plan, and the best one (`planning.step_forecast`);
3. switch: is speculation on, warm or cold (`switch.modes`)?
4. trial: is a step worth running for what it tells (`planning.trials`)?
5. plan: the best plan, among the drafts at hand as the acceptance model chooses them.

A finished step goes the other way: acceptance, step times, switch. `goodput` and `regression`
differ by their acceptance model alone.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.per_request import lowest_of
from adaptive_spec.policies.cost_profile import CostProfile, load_profile
from adaptive_spec.policies.kernels import load_kernels, prepare_kernels
from adaptive_spec.policies.planning.break_even_table import BreakEven, BreakEvenTable
from adaptive_spec.policies.planning.cold_trial import ColdTrial
from adaptive_spec.policies.planning.explanation import EVERY_STEPS, Worth, explanation
from adaptive_spec.policies.planning.exploration import Explorer, Exploring, first_k, measuring
from adaptive_spec.policies.planning.planner import Ahead, value_of
from adaptive_spec.policies.planning.prompt_share import PromptShare
from adaptive_spec.policies.planning.step_forecast import OffForecast, StepForecast, forecast_step
from adaptive_spec.policies.planning.tpot_targets import TpotTargets
from adaptive_spec.policies.planning.trials import Trials
from adaptive_spec.policies.step_time.belief import SavedBelief
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.policies.switch.modes import ModeMachine
from adaptive_spec.policy import State
from adaptive_spec.step import (
    BoolArray,
    Capability,
    FinishedStep,
    FloatArray,
    IntArray,
    Mode,
    SpecPlan,
    StepContext,
)

# A drafter without a state comes back at no cost.
_LEAST_STEPS, _LEAST_STATELESS = 60, 24
"""Steps timed before speculation may stop; fewer for a drafter without a state."""

_WRONG = 0.2
"""Relative error of a probe's step times beyond which the belief about them is widened."""


class Drafts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Knowledge of the drafts of a step before the step is planned.

    Attributes:
        context: the step as it is to be planned; with two sources, the drafts chosen among them.
        survival: [Kmax, B] probability that all drafts up to a position are accepted, from finished
            steps only.
        notes: arrays by request that `learn_acceptance` needs back; see `SpecPlan.notes`.
        hazard: [Kmax, B] acceptance of a draft whose predecessors were accepted, from finished
            steps only; None where `choose` does not use it.
        live: [Kmax, B] what `choose` reads of the drafter's confidence; None without confidence.
        from_lookup: [B] requests whose drafts were looked up; None: nobody's.
        ahead: value of the drafter's next drafts; None: as `survival` says.
        without_drafter: the drafter's pass is left out, as all do better by the look-up alone.
    """

    context: StepContext
    survival: FloatArray
    notes: tuple[FloatArray, ...] = ()
    hazard: FloatArray | None = None
    live: FloatArray | None = None
    from_lookup: BoolArray | None = None
    ahead: Ahead | None = None
    without_drafter: bool = False


class Choice(msgspec.Struct, frozen=True, eq=False):
    """Drafts at hand to verify, and the depth to draft at the end of the step.

    Attributes:
        verify: [B] K_i.
        draft_depth: D.
        reason: for people.
        survival: [Kmax, B] of the drafts at hand, by which the plan's tokens are predicted; None:
            as the forecast says.
    """

    verify: IntArray
    draft_depth: int
    reason: str
    survival: FloatArray | None = None


class Acceptance(Protocol):
    """Model of the probability that a draft is accepted, and of how to choose among drafts."""

    saved_as: str
    """Key of the model in a saved state."""

    @property
    def observations(self) -> IntArray | None:
        """[Kmax] number of observations of each position; None: the model explores by itself."""
        ...

    def start(self, capability: Capability) -> None:
        """Begin on an engine, knowing nothing."""
        ...

    def predict_drafts(self, context: StepContext, step_times: CostModel) -> Drafts:
        """Return what is known of the drafts of a step that decodes."""
        ...

    def forecast_made(self, forecast: StepForecast) -> None:
        """Read the forecast of the step whose drafts `predict_drafts` has just predicted."""
        ...

    def choose(self, forecast: StepForecast, drafts: Drafts, least_depth: int) -> Choice:
        """Choose the drafts to verify; `least_depth` is the smallest D > 0 the engine can run."""
        ...

    def learn_acceptance(self, step: FinishedStep, step_times: CostModel) -> bool:
        """Learn from a finished step; whether acceptance has changed."""
        ...

    def widen(self, *, centre: bool = False) -> None:
        """Trust the past less; `centre`: move the mean effect of the requests to the positions."""
        ...

    def forget(self, slots: IntArray) -> None:
        """Reset the state of these slots; their requests have ended."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what holds beyond single requests, JSON-compatible."""
        ...

    def check_state(self, saved: Any) -> None:
        """Raise PolicyError if this saved state fits no engine at all."""
        ...

    def restore(self, saved: Any) -> None:
        """Adopt a saved state. Raises PolicyError if it does not fit."""
        ...


class PlannedPolicy:
    """Maximises expected tokens per second of each step.

    Args:
        acceptance: model of acceptance.
        profile: cost profile to start from: a file, or the profile itself.
        tpot_allowance: largest relative lengthening of a step for requests behind their target.
        seed: of the exploration.
    """

    name: ClassVar[str]
    prepare = staticmethod(prepare_kernels)

    def __init__(
        self,
        acceptance: Acceptance,
        profile: CostProfile | str | None,
        *,
        tpot_allowance: float,
        seed: int,
    ) -> None:
        self._acceptance = acceptance
        self._profile = load_profile(Path(profile)) if isinstance(profile, str) else profile
        self._saved_belief: SavedBelief | None = None
        self._seed = seed
        self._tpot_allowance = tpot_allowance
        self._tpot: TpotTargets | None = None
        """None until a request asks for a TPOT."""
        load_kernels()
        self._capability: Capability | None = None
        self._restored: State | None = None
        self._last_depth: int | None = None
        self._worth = Worth()
        self._explained: StepForecast | None = None
        self._off_since = math.inf
        self._probe_error = math.inf
        """Least relative error of the predicted times of a probe's steps."""

    # ------------------------------------------------------------------- decide

    def plan(self, context: StepContext) -> SpecPlan:
        """Decide K_i for this verification and D for the next drafting."""
        if self._capability is None:
            self._start(context.capability)
        if context.batch_size == 0:
            return self._plan_prompts(context)
        drafts = self._acceptance.predict_drafts(context, self._cost)
        context = drafts.context
        if self._cost.ready:
            plan = self._plan_forecast(drafts)
        else:
            k, steers = first_k(context, drafts.survival), context.capability.steers_depth
            verify, depth = (
                np.minimum(context.draft_available, k),
                k if steers else context.engine_k,
            )
            plan = measuring(context, verify, depth, Mode.ON, "no step measured yet")
        if not drafts.notes and drafts.from_lookup is None:
            return plan
        return msgspec.structs.replace(plan, notes=drafts.notes, from_lookup=drafts.from_lookup)

    def _plan_forecast(self, drafts: Drafts) -> SpecPlan:
        context = drafts.context
        late = self._late(context)
        if self._prompts.tokens:
            shared = context.shared_seconds + self._cost.prefill_seconds(self._prompts.tokens)
            context = msgspec.structs.replace(context, shared_seconds=shared)
        forecast = forecast_step(
            context,
            drafts.survival,
            self._cost,
            drafts.ahead,
            drafter=not drafts.without_drafter,
        )
        self._acceptance.forecast_made(forecast)
        self._explained = forecast
        timed = None
        mode = self._mode_of(forecast)
        if not context.step % EVERY_STEPS:
            self._break_even.planned(forecast)
            self._worth.planned(forecast, mode, self._last_depth or 0, self._break_even.found)
        if mode is not Mode.ON:
            self._off_since = min(self._off_since, context.now)
            self._last_depth = 0
            plan = self._exploring.while_off(forecast, self._modes)
        else:
            self._off_since = math.inf
            timed = None if drafts.without_drafter else self._timed(forecast)
            plan = timed or self._plan_on(forecast, drafts)
        if plan.predicted_seconds > 0.0:
            seconds = forecast.compared_seconds(plan)
            self._modes.add_planned_step(
                seconds=seconds, tokens=forecast.counted(plan.predicted_tokens)
            )
        # Whether speculation pays was judged by the plan without targets; a trial stays as it is.
        if late is not None and plan.mode is Mode.ON and timed is None:
            assert self._tpot is not None
            plan = self._tpot.raised(plan, forecast, late)
        return plan

    def _late(self, context: StepContext) -> BoolArray | None:
        """Return [B] whether each request is behind its TPOT target; None if none is."""
        if not self._tpot_allowance or not lowest_of(context.tpot_target) < math.inf:
            return None
        if self._tpot is None:
            self._tpot = TpotTargets(self._tpot_allowance)
        return self._tpot.late(context)

    def _plan_on(self, forecast: StepForecast, drafts: Drafts) -> SpecPlan:
        """Plan a step that speculates; sometimes one draft more for some requests."""
        best = forecast.best
        if drafts.without_drafter:
            return forecast.predicted_plan(best.verify, 0, Mode.OFF_COLD, "look-up alone")
        choice = self._acceptance.choose(forecast, drafts, self._exploring.probe_depth)
        verify, depth, reason = choice.verify, choice.draft_depth, choice.reason
        self._last_depth = depth
        propensity, measures = None, False
        if self._acceptance.observations is not None:
            explored = self._exploring.extended(forecast, verify, depth)
            verify, depth, propensity = explored.verify, explored.depth, explored.propensity
            if explored.extended:
                reason, measures = "exploring one deeper", True
        # Drafts that fill padding and those explored count, too: without them a batch that fills
        # a captured size would look like a loss.
        tokens = None
        if choice.survival is not None:
            tokens = forecast.context.batch_size + value_of(choice.survival, verify)
        k_ahead = self._exploring.k_ahead
        if k_ahead is not None:
            depth, reason, measures = k_ahead, f"drafting {k_ahead} to measure it", True
        plan = forecast.predicted_plan(
            verify, depth, Mode.ON, reason, propensity, tokens=tokens, measures=measures
        )
        # A trial of a K lacks this gain, as it admits no drafts by confidence.
        if tokens is not None and k_ahead is None:
            seconds = forecast.compared_seconds(plan)
            better = forecast.counted(tokens) / forecast.counted(forecast.best_tokens)
            better *= forecast.best.seconds / seconds
            self._exploring.trials.add_admission_gain(math.log(better))
        return plan

    def _timed(self, forecast: StepForecast) -> SpecPlan | None:
        """Return a trial: a uniform K, or a step without the drafter. None if none is worth it."""
        trial = self._cold_trial
        if trial is not None and trial.due(forecast, self._modes.request_seconds):
            return self._exploring.without_drafter(forecast.context)
        best = OffForecast(forecast).best_uniform()[0] if self._modes.wants_a_trial else None
        return self._exploring.measured(forecast, self._acceptance.observations, best)

    def _mode_of(self, forecast: StepForecast) -> Mode:
        context, before, trial = forecast.context, self._modes.mode, self._cold_trial
        if trial is not None and trial.pays(forecast) is False:
            self._modes.stop_after_cold_trial(OffForecast(forecast), context.batch_size)
        mode = self._modes.step(
            OffForecast(forecast),
            batch_size=context.batch_size,
            # A step that is planned ahead does not know its prompts yet.
            prompts=context.prefill_tokens > 0 or self._prompts.recent,
            now=context.now,
            ready=self._knows_enough(context.capability)
            and not (trial is not None and trial.recovering(context)),
        )
        if mode is Mode.ON and before is not Mode.ON and self._modes.back_by_probe:
            # Only the probe's requests show acceptance as it is now.
            self._acceptance.widen(centre=True)
        if not self._modes.probing:
            if _WRONG < self._probe_error < math.inf:
                # Step times with drafts are as old: only K = 0 has run since.
                self._cost.doubt()
            self._probe_error = math.inf
        return mode

    def _knows_enough(self, capability: Capability) -> bool:
        """Step times are known well enough to stop speculating because of them."""
        cost = self._cost
        least = _LEAST_STEPS if capability.off_pass else _LEAST_STATELESS
        return (self._profile is not None and not cost.changes) or cost.samples >= least

    def _plan_prompts(self, context: StepContext) -> SpecPlan:
        """Plan a step of prompts only: draft to the depth of the last decode step."""
        modes = self._modes
        depth = context.engine_k if self._last_depth is None else self._last_depth
        modes.prompts_only(now=context.now)
        if modes.probing:
            depth = max(depth, self._exploring.probe_depth)
        nobody: IntArray = np.zeros(0, dtype=np.int64)
        return SpecPlan(
            step=context.step,
            verify=nobody,
            draft_depth=depth,
            mode=modes.plan_mode,
            reason="nothing decodes",
        )

    # -------------------------------------------------------------------- learn

    def observe(self, step: FinishedStep) -> None:
        """Learn acceptance and step time from a finished step."""
        if self._capability is None:
            return
        outcome = step.outcome
        self._prompts.add_step(outcome)
        self._break_even.drafted = outcome.draft_depth > 0
        if self._acceptance.learn_acceptance(step, self._cost):
            self._acceptance.widen()
            self._modes.acceptance_changed()
        # In shadow mode another plan ran, and the drafter may have drafted.
        cold = step.plan.mode is Mode.OFF_COLD and outcome.draft_depth == 0
        if self._cost.learn_step_time(outcome, cold=cold):
            self._modes.costs_changed()
        if self._modes.probing:
            self._modes.scored(
                samples=int(np.count_nonzero(outcome.verified)),
                accepted=int(np.count_nonzero(outcome.accepted)),
            )
        if self._tpot is not None:
            self._tpot.emitted(outcome.slots, outcome.emitted)
        self._modes.lengths.emitted(outcome.slots, outcome.emitted)
        plan, predicted = step.plan, step.plan.predicted_tokens
        probe = plan.mode is Mode.OFF_WARM  # OFF_COLD verifies copied drafts only
        if probe and outcome.verified.any() and plan.predicted_seconds > 0.0:
            error = abs(outcome.seconds / plan.predicted_seconds - 1.0)
            self._probe_error = min(self._probe_error, error)
        # The surplus tells of the prediction only where the plan ran as it was made.
        heeded = self._modes.heeds_surplus and plan.mode is Mode.ON and predicted > 0.0
        if heeded and outcome.slots.size and bool((outcome.verified == plan.verify).all()):
            surplus = float(outcome.emitted.mean()) - predicted / outcome.batch_size
            if (rows := step.context.taking_part) is not None:  # the others emit what they must
                surplus *= len(rows) / int(np.count_nonzero(rows))
            self._modes.emitted(surplus)

    def forget(self, slots: IntArray) -> None:
        """Drop the state of ended requests."""
        if self._capability is not None:
            self._acceptance.forget(slots)
            self._modes.ended(slots)
            self._prompts.ended(slots)
        if self._tpot is not None:
            self._tpot.forget(slots)

    # -------------------------------------------------------------------- state

    def estimates(self) -> dict[str, float]:
        """Return expected tokens per second of no speculation, the engine's own K and the plan."""
        return self._worth.snapshot()

    @property
    def last_forecast(self) -> StepForecast | None:
        """Forecast of the last step that was forecast, for `adaptive-spec explain`."""
        return self._explained

    def break_even_table(self) -> BreakEven | None:
        """Return where drafts break even; None before the first forecast."""
        return None if self._capability is None else self._break_even.snapshot()

    def break_even(self) -> dict[str, Any]:
        """Return the same, JSON-compatible; empty instead of None."""
        return dict(msgspec.to_builtins(self.break_even_table() or {}, str_keys=True))

    def explanation(self) -> dict[str, Any]:
        """Return the numbers behind the last decision; empty before the first forecast."""
        forecast = self._explained
        if forecast is None:
            return {}
        numbers = explanation(forecast, self._exploring.trials.uncertain(forecast))
        numbers["switch"] = self._modes.snapshot()
        if self._modes.mode is not Mode.ON:
            now = forecast.context.now
            k, of_none = OffForecast(forecast).best_uniform()
            numbers["best"] = {"k": k, "of_none": round(of_none, 3)}
            numbers["off_seconds"] = round(max(now - self._off_since, 0.0), 1)
            numbers["probing"] = self._modes.probing
            numbers["next_probe_seconds"] = round(self._modes.next_probe - now, 1)
        return numbers

    def state(self) -> State:
        """Return what was learned of acceptance, and the learned cost profile."""
        if self._capability is None:
            return self._restored or {}
        profile = self._cost.profile()
        state: State = {
            "schema": 1,
            self._acceptance.saved_as: self._acceptance.state(),
            "profile": None,
        }
        if profile is not None:
            state["profile"] = msgspec.to_builtins(profile)
            state["step_times"] = msgspec.to_builtins(self._cost.belief.saved())
        return state

    def restore(self, state: State) -> None:
        """Start from a saved state; its Kmax must be the engine's."""
        if not state:
            return
        key = self._acceptance.saved_as
        if state.get("schema") != 1 or key not in state:
            needed = f"schema 1 with `{key}` and `profile`"
            raise PolicyError(f"{self.name} state: {needed} expected")
        profile, saved = self._profile, self._saved_belief
        try:
            if state.get("profile") is not None:
                profile, saved = msgspec.convert(state["profile"], CostProfile), None
                if state.get("step_times") is not None:
                    saved = msgspec.convert(state["step_times"], SavedBelief)
                    saved.check()
        except (msgspec.ValidationError, ValueError) as error:
            raise PolicyError(f"{self.name} state: step times: {error}") from error
        self._acceptance.check_state(state[key])
        self._profile, self._saved_belief, self._restored = profile, saved, state
        if self._capability is not None:
            self._start(self._capability)

    def _start(self, capability: Capability) -> None:
        self._capability = capability
        self._acceptance.start(capability)
        self._cost = CostModel(capability, self._profile, self._saved_belief)
        self._modes = ModeMachine(capability)
        self._break_even = BreakEvenTable(capability, self._cost)
        self._prompts = PromptShare()
        self._cold_trial = ColdTrial(self._cost) if ColdTrial.needed(capability) else None
        self._exploring = Exploring(
            Explorer(capability, self._seed), Trials(capability, self._cost)
        )
        # Last, so that a saved state that does not fit raises once and not in every step.
        restored, self._restored = self._restored, None
        if restored is not None:
            self._acceptance.restore(restored[self._acceptance.saved_as])
