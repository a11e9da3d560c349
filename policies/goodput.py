"""`goodput`: a decision on one page.

1. believe: how probably each draft is accepted (`acceptance`), how long a step lasts
   (`step_times`);
2. plan: the drafts to verify and the depth with the most expected tokens per second (`planner`),
   drafts at hand admitted by confidence at the price that the plan has set;
3. try: run another K if what it tells is worth more than it loses (`trial`);
4. switch: stop the drafter once it has lost more than those alive may lose without it (`switch`).

A finished step goes the other way: acceptance, switch, step times. K = 0 with a warm drafter is a
plan like any other. Decisions use finished steps, and of the drafts at hand their confidence alone,
as the losslessness contract allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.per_request import highest_of, lowest_of, sum_of
from adaptive_spec.policies.acceptance import (
    PRIOR_HAZARD,
    Acceptance,
    SavedAcceptance,
    saved_by_drafts,
)
from adaptive_spec.policies.cost_profile import load_profile
from adaptive_spec.policies.figures import Figures
from adaptive_spec.policies.kernels import load_kernels
from adaptive_spec.policies.optional.cold_trial import ColdTrial
from adaptive_spec.policies.optional.fleet_prior import (
    pooled_acceptance,
    pooled_step_times,
)
from adaptive_spec.policies.optional.profile_prior import prior_of_profile
from adaptive_spec.policies.optional.second_source import SecondSource
from adaptive_spec.policies.optional.tpot_targets import TpotTargets
from adaptive_spec.policies.planning.planner import Ahead
from adaptive_spec.policies.planning.search import value_of
from adaptive_spec.policies.planning.step_forecast import StepForecast, forecast_step, verify_price
from adaptive_spec.policies.step_features import RAGGED, SIZE
from adaptive_spec.policies.step_times import SavedStepTimes, StepTimes
from adaptive_spec.policies.switch import Switch
from adaptive_spec.policies.trial import EVERY, best_trial
from adaptive_spec.policy import Peer, State
from adaptive_spec.step import (
    BoolArray,
    Capability,
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

SCHEMA = 2
"""Of saved states."""
LOOK_AFTER = 256
"""Steps without drafts before one looks whether they pay again; doubled at each look."""
LONGEST_UNSEEN = 2 * LOOK_AFTER
"""Such steps at most."""
SCORED_EVERY = 8
"""Steps of which one is held against its predictions, to save time; AUC needs hundreds."""


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A saved state."""

    schema: int
    acceptance: SavedAcceptance
    step_times: SavedStepTimes | None
    copied: SavedAcceptance | None = None


class GoodputOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `goodput`."""

    profile: str | None = None
    """File with a cost profile to start from; without one, costs are learned from scratch."""
    prior_hazard: Annotated[float, msgspec.Meta(gt=0, lt=1)] = PRIOR_HAZARD
    """Acceptance assumed at each position before anything has been seen."""
    tpot_allowance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.02
    """Largest relative lengthening of a step for requests behind their TPOT target; 0 ignores
    targets."""
    confidence: bool = True
    """Use the drafter's confidence where the engine reports it."""


class GoodputPolicy:
    """Maximises expected tokens per second of each step, from two beliefs."""

    name: ClassVar[str] = "goodput"
    summary: ClassVar[str] = "most expected tokens per second, from two beliefs (default)"
    Options: ClassVar[type[msgspec.Struct]] = GoodputOptions
    reads_entropy: ClassVar[bool] = False
    prepare = staticmethod(load_kernels)

    def __init__(self, options: GoodputOptions, *, seed: int = 0) -> None:
        self._options = options
        self._profile = load_profile(Path(options.profile)) if options.profile else None
        del seed
        self._capability: Capability | None = None
        self._restored: _Saved | None = None
        self._source: SecondSource | None = None
        """None until drafts are looked up, too."""
        self._tpot: TpotTargets | None = None
        """None until a request asks for a TPOT."""

    def _start(self, capability: Capability) -> None:
        self._capability, self._source = capability, None
        self.acceptance = Acceptance(capability.max_draft_tokens, self._options.prior_hazard)
        self.times = StepTimes(capability)
        if self._profile is not None:
            self.times.restore(prior_of_profile(self._profile, self.times))
        self.switch = Switch(capability)
        self._cold_trial = ColdTrial(self.times) if ColdTrial.needed(capability) else None
        self.figures = Figures(capability, self.times, self.switch)
        self._trial: int | None = None
        """K that the last step has drafted for, to measure it."""
        self._depth: int | None = None
        self._seen = 0
        self._unseen, self._look_at = 0, LOOK_AFTER
        """Steps without drafts, and how many of them before one looks."""
        self._looking = self._look_was_odd = False
        # Last, so that a saved state that does not fit raises once and not in every step.
        restored, self._restored = self._restored, None
        if restored is not None:
            self._restore_beliefs(restored)

    # ------------------------------------------------------------------- decide

    def plan(self, context: StepContext) -> SpecPlan:
        """Decide K_i for this verification and D for the next drafting."""
        if self._capability is None:
            self._start(context.capability)
        source, chosen = self._source, None
        if context.lookup_available is not None and source is None:
            self._source = source = SecondSource(context.capability.max_draft_tokens)
        if source is not None and source.fades(cold=self.switch.cold):
            self.switch.until = context.now
        if self.switch.returns(context.now, context.batch_size):
            self.acceptance.widen()  # drafts may be better than they were, unseen
            self._unseen = self._look_at
        if context.batch_size == 0:
            return self._plan_prompts(context)
        self._seen += 1
        z = None
        if context.confidence is not None and self._options.confidence:
            z = self.acceptance.signal(context.confidence)
        if highest_of(context.task) >= 0:
            self.acceptance.begin(context.slots, context.task)
        _, survival = self.acceptance.predict(context.slots)
        if source is not None:
            chosen = source.choose(context, survival)
        if chosen is None:
            forecast = self._forecast(context, survival)
        else:
            forecast = self._forecast(chosen.context, chosen.survival, chosen.ahead)
        if source is not None:
            source.follow_price(forecast)
        from_lookup = None if chosen is None else chosen.from_lookup
        asked, late = self._depth or 0, self._late(context)
        plan, tried = self._decide(forecast, z, from_lookup)
        if self.times.scale:
            self.figures.planned(forecast, plan, asked)
            # Whether drafts pay was judged without targets; a trial stays as it is.
            if late is not None and plan.mode is Mode.ON and tried is None:
                assert self._tpot is not None
                plan = self._tpot.raised(plan, forecast, late)
        else:  # nothing was timed: seconds are in units of a step
            plan = msgspec.structs.replace(
                plan,
                reason="no step measured yet",
                measures=True,
                predicted_tokens=math.nan,
                predicted_seconds=math.nan,
            )
        if z is None and tried is None and from_lookup is None:
            return plan
        notes = () if z is None else (z.T,)
        return msgspec.structs.replace(plan, notes=notes, memo=tried, from_lookup=from_lookup)

    def _late(self, context: StepContext) -> BoolArray | None:
        """Return [B] whether each request is behind its TPOT target; None if none is."""
        if not self._options.tpot_allowance or not lowest_of(context.tpot_target) < math.inf:
            return None
        if self._tpot is None:
            self._tpot = TpotTargets(self._options.tpot_allowance)
        return self._tpot.late(context)

    def _forecast(
        self, context: StepContext, survival: FloatArray, ahead: Ahead | None = None
    ) -> StepForecast:
        """Return tokens and seconds of every plan by both beliefs, and the best plan."""
        times = self.times
        shared = context.shared_seconds + times.prompt_seconds(self.switch.shared_prompts)
        penalty = round(200.0 * float(times.coefficients[RAGGED])) / 200.0
        capability = context.capability
        if penalty != capability.ragged_penalty:
            capability = _with_penalty(capability, penalty)
        if capability is not context.capability or shared != context.shared_seconds:
            context = msgspec.structs.replace(context, capability=capability, shared_seconds=shared)
        total = sum_of(context.context_tokens)
        seconds = times.curves(context.batch_size, total, scale=times.scale or 1.0, besides=shared)
        prompts = times.prompt_seconds(context.prefill_tokens)
        return forecast_step(context, survival, *seconds, prompts, ahead)

    def _hope(self, context: StepContext) -> None:
        """Tell the switch what drafts save at half the load, and at this one if good again."""
        alive = int(np.count_nonzero(context.draft_possible))
        if not alive:
            self.switch.hope(0.0, 1.0, EVERY)
            return
        belief, total = self.acceptance, sum_of(context.context_tokens)
        batch = (alive + 1) // 2
        half = self.times.shortest(batch, total * batch // context.batch_size)
        saved = saved_by_drafts(belief.mean, belief.covariance, belief.flat, half)
        whole = self.times.shortest(context.batch_size, total)
        again = saved_by_drafts(belief.prior_mean, 0.0 * belief.prior, belief.flat, whole)
        self.switch.hope(saved, again, EVERY)

    def _decide(
        self,
        forecast: StepForecast,
        z: FloatArray | None,
        from_lookup: BoolArray | None,
    ) -> tuple[SpecPlan, int | None]:
        """Return the plan, and K whose trial it is."""
        context, best = forecast.context, forecast.best
        if self.switch.may_stop:
            # OFF-cold runs no pass: its step is the verify time without drafts.
            cold = float(forecast.verify_seconds[0])
            self.switch.losing = forecast.best_tokens * cold <= context.batch_size * best.seconds
            if not context.step % EVERY:
                self._hope(context)
        trial = self._cold_trial
        if trial is not None and trial.stops(forecast):
            self.switch.stop(context.now, context.batch_size)
        if self.switch.cold:
            self._trial, self._depth = None, 0
            return _cold_plan(forecast, from_lookup), None
        if trial is not None and trial.due(forecast, self._seen, self.switch.lifetime):
            nothing: IntArray = np.zeros(context.batch_size, dtype=np.int64)
            reason = "measuring a step without the drafter"
            return forecast.predicted_plan(nothing, 0, Mode.OFF_COLD, reason, measures=True), None
        tried, self._depth = self._trial, best.draft_depth
        beliefs = self.acceptance, self.times
        self._trial = best_trial(
            context, best, forecast.survival, *beliefs, self._seen, self.switch.prompts
        )
        self._look(forecast)
        depth = best.draft_depth if self._trial is None else self._trial
        tokens: float | None = None
        if tried is not None:
            verify, reason = np.minimum(context.draft_available, tried), f"timing K = {tried}"
        else:
            verify, reason, tokens = self._chosen(forecast, z, from_lookup)
        capability = context.capability
        mode = Mode.ON
        if not depth and not verify.any():
            cold = capability.cold_off and not capability.off_pass
            mode = Mode.OFF_COLD if cold else Mode.OFF_WARM
        plan = forecast.predicted_plan(
            verify, depth, mode, reason, tokens=tokens, measures=tried is not None
        )
        return plan, tried

    def _look(self, forecast: StepForecast) -> None:
        """Draft a little where nothing has been drafted for long: beliefs alone would never."""
        context, best = forecast.context, forecast.best
        odd, self._look_was_odd = self._look_was_odd, False
        if best.draft_depth if context.capability.steers_depth else best.verify.any():
            self._unseen, self._look_at, self._looking = 0, LOOK_AFTER, False
            return
        self._unseen += 1
        due = odd or self._unseen >= self._look_at
        if self._trial or not due or not context.draft_possible.any():
            return
        if not odd:  # one odd step tells little, a second one more
            self.acceptance.widen()
            self._unseen, self._look_at = 0, min(2 * self._look_at, LONGEST_UNSEEN)
        self._trial = next((k for k in context.capability.uniform_values if k), None)
        self._looking = True

    def _chosen(
        self,
        forecast: StepForecast,
        z: FloatArray | None,
        from_lookup: BoolArray | None,
    ) -> tuple[IntArray, str, float | None]:
        """Return the drafts to verify, planned or admitted by confidence, why, and their tokens.

        None for the tokens: those of the forecast.
        """
        context, best = forecast.context, forecast.best
        if z is None or not self.acceptance.informative or not best.draft_depth:
            return best.verify, "planned", None
        if context.capability.level is Level.UNIFORM:
            return best.verify, "planned", None
        _, survival = self.acceptance.predict(context.slots, z)
        if from_lookup is not None:
            survival = np.where(from_lookup, forecast.survival, survival)
        worth = survival if forecast.weights is None else survival * forecast.weights
        pays = (worth >= verify_price(forecast)).sum(axis=0)
        verify = np.minimum(context.draft_available, pays)
        tokens = context.batch_size + value_of(survival, verify)
        return verify, "admitted by confidence", tokens

    def _plan_prompts(self, context: StepContext) -> SpecPlan:
        """Plan a step of prompts only: draft to the depth of the last decode step."""
        cold = self.switch.cold
        depth = context.engine_k if self._depth is None else self._depth
        return SpecPlan(
            step=context.step,
            verify=np.zeros(0, dtype=np.int64),
            draft_depth=0 if cold else depth,
            mode=Mode.OFF_COLD if cold else Mode.ON,
            reason="nothing decodes",
        )

    # -------------------------------------------------------------------- learn

    def observe(self, step: FinishedStep) -> None:
        """Learn acceptance, losses and step time from a finished step."""
        if self._capability is None:
            return
        outcome, plan = step.outcome, step.plan
        if outcome.slots.size:
            z = None
            if plan.notes:
                z = np.ascontiguousarray(plan.notes[0].T)
            elif outcome.confidence is not None and self._options.confidence:
                z = self.acceptance.signal(outcome.confidence)
            verified, accepted = outcome.verified, outcome.accepted
            if plan.from_lookup is not None:  # copied drafts say nothing of the drafter
                verified, accepted = np.where(plan.from_lookup, 0, (verified, accepted))
            self._score_predictions(outcome, verified, accepted, z)
            self.acceptance.learn(outcome.slots, verified, accepted, z)
        self.figures.table.drafted = outcome.draft_depth > 0
        # In shadow mode another plan ran, and the drafter may have drafted.
        cold = plan.mode is Mode.OFF_COLD and outcome.draft_depth == 0
        if outcome.seconds > 0.0 and outcome.batch_size and outcome.slots.size:
            self._learn_loss(step, cold=cold)
        self.times.learn(outcome, cold=cold, tried=plan.memo)
        # The step that made the drafts of a look is part of it.
        drafted = outcome.draft_depth > 0 and self._capability.steers_depth
        if self._looking and (drafted or plan.memo is not None) and self.times.surprised:
            self._look_was_odd, self._looking = True, False
        if cold and self._cold_trial is not None and outcome.batch_size:
            self._cold_trial.timed(outcome.batch_size)
        if self._source is not None and outcome.slots.size:
            self._source.learn(step)
        if self._tpot is not None:
            self._tpot.emitted(outcome.slots, outcome.emitted)

    def _score_predictions(
        self, outcome: StepOutcome, verified: IntArray, accepted: IntArray, z: FloatArray | None
    ) -> None:
        """Hold predicted acceptance of some steps against their outcomes."""
        if outcome.step % SCORED_EVERY:
            return
        believed, counts = self.acceptance.predict, (verified, accepted)
        self.figures.quality.see("history", believed(outcome.slots)[0], *counts)
        if z is not None:
            self.figures.quality.see("confidence", believed(outcome.slots, z)[0], *counts)

    def _learn_loss(self, step: FinishedStep, *, cold: bool) -> None:
        outcome, times = step.outcome, self.times
        if not times.scale:
            return
        batch, context = outcome.batch_size, outcome.context_tokens
        drafts, tokens = 0, 1.0
        if self._source is not None:
            drafts, tokens = self._source.alone(step)
        without = times.seconds(batch, batch + drafts, context, 0.0) / tokens
        seconds = outcome.seconds
        if outcome.prefill_tokens:
            passes = 0.0 if cold else float(times.passes[outcome.draft_depth])
            seconds = times.seconds(batch, outcome.batch_tokens, context, passes)
        emitted = outcome.emitted
        if (rows := step.context.taking_part) is not None:
            emitted = emitted[rows]
        lost = seconds - sum_of(emitted) / len(emitted) * without
        if self._cold_trial is not None and self._cold_trial.recovering:
            lost = 0.0
        self.switch.learn(outcome.now, outcome.slots, batch, seconds, lost, outcome.prefill_tokens)

    def forget(self, slots: IntArray) -> None:
        """Drop the state of ended requests."""
        if self._capability is not None:
            self.acceptance.forget(slots)
            self.switch.forget(slots)
        for part in (self._source, self._tpot):
            if part is not None:
                part.forget(slots)

    # ------------------------------------------------------------------ figures

    @property
    def last_forecast(self) -> StepForecast | None:
        """Forecast of the last step that was forecast, for `adaptive-spec explain`."""
        return None if self._capability is None else self.figures.forecast

    def estimates(self) -> dict[str, float]:
        """Return tokens per second of no speculation, the engine's own K and the plan."""
        return {} if self._capability is None else self.figures.estimates()

    def explanation(self) -> dict[str, Any]:
        """Return the numbers behind the last decision; see `Figures.explanation`."""
        return {} if self._capability is None else self.figures.explanation()

    def hazard_quality(self) -> dict[str, dict[str, Any]]:
        """Return how well acceptance is predicted; see `policies.hazard_quality`."""
        return {} if self._capability is None else self.figures.quality.snapshot()

    def break_even(self) -> dict[str, Any]:
        """Return where drafts break even; see `policies.optional.break_even`."""
        return {} if self._capability is None else self.figures.break_even()

    # -------------------------------------------------------------------- state

    def state(self) -> State:
        """Return both beliefs, each with the prior that it began with."""
        saved = self._restored
        if self._capability is not None:
            copied = self._source.saved() if self._source else None
            saved = _Saved(SCHEMA, self.acceptance.saved(), self.times.saved(), copied)
        return {} if saved is None else dict(msgspec.to_builtins(saved))

    def restore(self, state: State) -> None:
        """Start from a saved state; its Kmax must be the engine's."""
        if state:
            self._adopt(self._checked(state))

    def _adopt(self, saved: _Saved) -> None:
        if self._capability is None:  # the first plan tells whether it fits
            self._restored = saved
            return
        kmax, engine = len(saved.acceptance.positions.mean), self._capability.max_draft_tokens
        if kmax != engine:
            raise PolicyError(f"{self.name} state: of Kmax {kmax}, the engine's is {engine}")
        self._restored = saved
        self._start(self._capability)

    def _checked(self, state: State) -> _Saved:
        """Return a saved state as its parts. Raises PolicyError, one line."""
        if (schema := state.get("schema")) != SCHEMA:
            shown = schema if isinstance(schema, int) else "unknown"
            raise PolicyError(
                f"{self.name} state: schema {shown} is of another version, {SCHEMA} is expected"
            )
        try:
            saved = msgspec.convert(state, _Saved)
        except (msgspec.ValidationError, ValueError) as error:
            raise PolicyError(f"{self.name} state: {error}") from error
        kmax = len(saved.acceptance.positions.mean)
        for each in (saved.acceptance, saved.copied):
            if each is not None:
                Acceptance(kmax).restore(each)
        if saved.step_times is not None:
            saved.step_times.parts.checked(SIZE)
            if any(len(each) != kmax + 1 for each in saved.step_times.timed.values()):
                raise PolicyError(f"{self.name} state: step times are not of Kmax {kmax}")
        return saved

    def join_fleet(self, peers: Sequence[Peer], capability: Capability) -> list[str]:
        """Start from what other replicas have learned; see `policies.optional.fleet_prior`.

        Returns why each of those that are left out is not used.
        """
        kmax, refused = capability.max_draft_tokens, []
        acceptance, copied, step_times = [], [], []
        for peer in peers:
            try:
                saved = self._checked(peer.state)
                if (own := len(saved.acceptance.positions.mean)) != kmax:
                    raise PolicyError(f"of Kmax {own}, the engine's is {kmax}")
            except PolicyError as error:
                refused.append(f"{peer.name}: {error}")
                continue
            acceptance.append((saved.acceptance, peer.doubt))
            if saved.copied is not None:
                copied.append((saved.copied, peer.doubt))
            if saved.step_times is not None and peer.alike:
                step_times.append((saved.step_times, peer.doubt))
        if not acceptance:
            return refused
        alone, copying = Acceptance(kmax, self._options.prior_hazard), SecondSource(kmax).copied
        times = StepTimes(capability)
        pooled = _Saved(
            SCHEMA,
            pooled_acceptance(acceptance, alone),
            pooled_step_times(step_times, times) if step_times else None,
            pooled_acceptance(copied, copying) if copied else None,
        )
        self._adopt(pooled)
        return refused

    def _restore_beliefs(self, saved: _Saved) -> None:
        self.acceptance.restore(saved.acceptance)
        if saved.step_times is not None:
            self.times.restore(saved.step_times)
        if saved.copied is not None:
            self._source = SecondSource(len(saved.acceptance.positions.mean))
            self._source.copied.restore(saved.copied)


def _cold_plan(forecast: StepForecast, from_lookup: BoolArray | None) -> SpecPlan:
    """Return a step without the drafter's pass; copied drafts are verified none the less."""
    reason = "drafts lose more than they bring"
    verify: IntArray = np.zeros(forecast.context.batch_size, dtype=np.int64)
    if from_lookup is not None:
        pays = (forecast.survival >= verify_price(forecast)).sum(axis=0)
        verify = np.where(from_lookup, np.minimum(forecast.context.draft_available, pays), 0)
        reason = "look-up alone"
    return forecast.predicted_plan(verify, 0, Mode.OFF_COLD, reason)


@lru_cache(maxsize=64)
def _with_penalty(capability: Capability, penalty: float) -> Capability:
    return msgspec.structs.replace(capability, ragged_penalty=penalty)
