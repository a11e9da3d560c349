"""`goodput`: verify what maximises expected tokens per second, learned online.

`adaptive_spec.policies.planned` describes how a step is planned. Here: hazards
learned online (`adaptive_spec.policies.acceptance.model`), detection of changes in them
(`policies.acceptance.change_detection`), and the use of the drafter's confidence: drafts are
admitted by it, at prices the planner has set
(`adaptive_spec.policies.planning.confidence_admission`).

Apart from that, everything a decision uses comes from finished rounds, so outputs keep their
distribution however drafts are sampled.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.acceptance.change_detection import ChangeDetector
from adaptive_spec.policies.acceptance.model import AcceptanceModel, survival_of
from adaptive_spec.policies.planned import PlannedPolicy
from adaptive_spec.policies.planning.confidence_admission import ConfidenceAdmission
from adaptive_spec.policies.planning.draft_sources import DraftSources
from adaptive_spec.policies.planning.lookup_alone import LookupAlone
from adaptive_spec.policies.planning.step_forecast import Ahead, StepForecast, forecast_step
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
)

_LOOK_PERIOD = 16
"""Steps between looks at the drafter's confidence, where history and prices say not to draft."""


class GoodputOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `goodput`."""

    profile: str | None = None
    """File with a cost profile to start from; without one, costs are learned from scratch."""
    prior_hazard: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.67
    """Acceptance assumed at each position before anything has been seen."""
    tpot_allowance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.02
    """Largest relative lengthening of a step for requests behind their TPOT target; 0 ignores
    targets."""
    confidence: bool = True
    """Use the drafter's confidence where the engine reports it."""


class Seen(NamedTuple):
    """Knowledge of a step's drafts before the step is planned.

    Attributes:
        hazard: [Kmax, B] of the drafts that may be verified, by history, from finished steps.
        signal: [Kmax, B] z of the drafts at hand; None where the engine reports no confidence.
        from_lookup: [B] requests whose drafts were looked up; None: nobody's.
        ahead: what the drafter's next drafts are worth; None: as `hazard` says.
        without_drafter: the drafter's pass is left out, as all do better by the look-up alone.
    """

    hazard: FloatArray
    signal: FloatArray | None
    from_lookup: BoolArray | None
    ahead: Ahead | None
    without_drafter: bool


class GoodputPolicy(PlannedPolicy[Seen]):
    """Maximises expected tokens per second of each step."""

    name: ClassVar[str] = "goodput"
    summary: ClassVar[str] = "most expected tokens per second, learned online (default)"
    Options: ClassVar[type[msgspec.Struct]] = GoodputOptions
    reads_entropy: ClassVar[bool] = False
    _saved_as: ClassVar[str] = "acceptance"

    def __init__(self, options: GoodputOptions, *, seed: int = 0) -> None:
        super().__init__(options.profile, options.tpot_allowance, seed)
        self._options = options

    def _make_hazards(self, capability: Capability) -> AcceptanceModel:
        self._acceptance = AcceptanceModel(
            capability.max_draft_tokens, prior_hazard=self._options.prior_hazard
        )
        self._change = ChangeDetector()
        self._admission = ConfidenceAdmission(self._acceptance)
        self._sources = DraftSources()
        self._lookup_alone = LookupAlone()
        self._trims = capability.level is not Level.UNIFORM
        return self._acceptance

    def _check_hazards(self, saved: Any) -> None:
        try:
            kmax = len(saved["position_effect"])
        except (KeyError, TypeError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        AcceptanceModel(kmax).restore(saved)

    # ------------------------------------------------------------------- decide

    def _see(self, context: StepContext) -> tuple[StepContext, Seen]:
        model = self._acceptance
        signal: FloatArray | None = None
        if context.confidence is not None and self._options.confidence and self._cost.ready:
            self._admission.late = False
            signal = model.confidence.signal(context.confidence)
            model.confidence.see(signal)
        by_drafter = model.hazard(context.slots, context.task)
        chosen = self._sources.choose(context, by_drafter, model.lookup)
        if signal is not None and chosen.from_lookup is not None:
            signal = np.where(chosen.from_lookup, np.nan, signal)
        seen = Seen(
            chosen.hazard,
            signal,
            chosen.from_lookup,
            chosen.ahead,
            self._cost.ready and self._lookup_alone.pays(context),
        )
        return chosen.context, seen

    def _forecast(self, context: StepContext, seen: Seen) -> StepForecast:
        forecast = forecast_step(
            context,
            survival_of(seen.hazard),
            self._cost,
            seen.ahead,
            drafter=not seen.without_drafter,
        )
        if context.lookup_available is not None:
            self._sources.priced(forecast)
        return forecast

    def _timed(self, forecast: StepForecast, seen: Seen) -> SpecPlan | None:
        return None if seen.without_drafter else super()._timed(forecast, seen)

    def _plan_on(self, forecast: StepForecast, seen: Seen) -> SpecPlan:
        """What the planner wants, what confidence admits of it, and now and then one more."""
        context, best = forecast.context, forecast.best
        if seen.without_drafter:
            return forecast.plan(best.verify, 0, Mode.OFF_COLD, "look-up alone")
        verify, depth, reason = best.verify, best.draft_depth, "planned"
        tokens = None
        if self._admission.useful and self._trims:
            if not depth and context.step % _LOOK_PERIOD == 0:
                # Where nothing is drafted nothing is shown, and nothing could be admitted again.
                depth = self._exploring.probe_depth
            if depth:
                reason = "admitted by confidence"
                if seen.signal is not None:
                    verify, tokens = self._admission.admit(forecast, seen.hazard, seen.signal)
        self._last_depth = depth
        explored = self._exploring.extended(forecast, verify, depth, self._acceptance.observations)
        return forecast.plan(
            explored.verify,
            explored.depth,
            Mode.ON,
            "exploring one deeper" if explored.extended else reason,
            explored.propensity,
            tokens=tokens,
        )

    def _with_notes(self, plan: SpecPlan, seen: Seen) -> SpecPlan:
        if seen.signal is None and seen.from_lookup is None:
            return plan
        notes = () if seen.signal is None else (seen.signal.T,)
        return msgspec.structs.replace(plan, notes=notes, from_lookup=seen.from_lookup)

    # -------------------------------------------------------------------- learn

    def _learn(self, step: FinishedStep) -> None:
        model, outcome = self._acceptance, step.outcome
        signal: FloatArray | None = None
        if step.plan.notes:
            signal = np.ascontiguousarray(step.plan.notes[0].T)
        elif outcome.confidence is not None and self._options.confidence:
            self._admission.late = True
            signal = model.confidence.signal(outcome.confidence)
            model.confidence.see(signal)
        verified, accepted, context = outcome.verified, outcome.accepted, step.context
        looked_up, agreed = step.plan.from_lookup, outcome.lookup_agreed
        if looked_up is not None:  # says nothing of the drafter
            verified, accepted = np.where(looked_up, 0, verified), np.where(looked_up, 0, accepted)
        if agreed is not None and context.lookup_available is not None:
            assert context.lookup_match is not None
            if step.plan.mode is Mode.ON:
                survival = survival_of(model.hazard(outcome.slots, context.task))
                copied = survival_of(model.lookup.hazard(outcome.slots, context.lookup_match))
                self._lookup_alone.learn(step, self._cost, survival, copied)
            model.lookup.learn(
                outcome.slots,
                context.lookup_available,
                context.lookup_match,
                agreed,
                outcome.emitted,
            )
        model.learn(outcome.slots, verified, accepted, context.task, signal)
        learned = model.history
        if self._change.observe(learned.surprise, learned.expected_variance, learned.observed):
            model.widen()
            self._modes.acceptance_changed()

    def forget(self, slots: IntArray) -> None:
        """Requests have ended."""
        super().forget(slots)
        if self._capability is not None:
            self._lookup_alone.forget(slots)

    def hazard_quality(self) -> dict[str, dict[str, Any]]:
        """How well acceptance is predicted; see `adaptive_spec.policies.acceptance.calibration`."""
        return {} if self._capability is None else self._acceptance.quality.snapshot()
