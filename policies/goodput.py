"""`goodput`: verify what maximises expected tokens per second, learned online.

`adaptive_spec.policies.planned` says how a step is planned. Here: acceptance learned online
(`policies.acceptance.model`), detection of changes in it (`policies.acceptance.change_detection`),
the choice between two sources of drafts, and the use of the drafter's confidence: drafts are
admitted by confidence, at prices the planner has set.

**Admission by confidence.** The planner sets the price of a verified draft from finished rounds:
the tokens it has to bring (goodput of the plan times seconds). Position j of request i is admitted
iff w_i s_ij reaches the price, with s_ij the survival given the confidences up to j. The survival
only ever falls along j and prices never do, so the first position that fails ends the request's
drafts.

Admission of (i, j) uses the request's confidences at 1..j, and prices that are older than the
round. Everything else that a decision uses comes from finished rounds. So outputs keep their
distribution however drafts are sampled.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.acceptance.change_detection import ChangeDetector
from adaptive_spec.policies.acceptance.hazard_model import survival_of
from adaptive_spec.policies.acceptance.model import AcceptanceModel
from adaptive_spec.policies.planned import Choice, Drafts, PlannedPolicy
from adaptive_spec.policies.planning.draft_sources import DraftSources, LookupAlone
from adaptive_spec.policies.planning.step_forecast import StepForecast, verify_prices
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import (
    Capability,
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    Mode,
    StepContext,
)


class ConfidenceAdmission:
    """Admits drafts at hand by their confidence.

    Attributes:
        late: the engine reports the drafter's confidence only after the drafts were verified.
    """

    def __init__(self, acceptance: AcceptanceModel) -> None:
        self._acceptance = acceptance
        self.late = False

    @property
    def useful(self) -> bool:
        """Whether confidence predicts acceptance and arrives in time."""
        return self._acceptance.informative and not self.late

    def admit(
        self, forecast: StepForecast, hazard: FloatArray, signal: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Return [B] drafts to verify, and the survival [Kmax, B] given their confidence.

        Args:
            forecast: of this step.
            hazard: [Kmax, B] by history.
            signal: [Kmax, B] confidences of the drafts at hand.
        """
        context = forecast.context
        survival = survival_of(
            self._acceptance.hazard_given(signal, hazard, context.slots, context.task)
        )
        worth = survival if forecast.weights is None else survival * forecast.weights
        prices = verify_prices(forecast)
        verify = np.minimum(context.draft_available, (worth >= prices[:, None]).sum(axis=0))
        return verify, survival


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


class LearnedAcceptance:
    """Acceptance by history, confidence and, with a second source, by the match of a look-up.

    Attributes:
        model: hazards by position, request, confidence and look-up.
    """

    saved_as = "acceptance"

    def __init__(self, options: GoodputOptions) -> None:
        self._options = options
        self.model = AcceptanceModel(1)

    def start(self, capability: Capability) -> None:
        """Begin on an engine, knowing nothing."""
        self.model = AcceptanceModel(
            capability.max_draft_tokens, prior_hazard=self._options.prior_hazard
        )
        self._change = ChangeDetector()
        self._admission = ConfidenceAdmission(self.model)
        self._sources = DraftSources()
        self._lookup_alone = LookupAlone()
        self._trims = capability.level is not Level.UNIFORM

    @property
    def observations(self) -> IntArray:
        """[Kmax] number of observations of each position."""
        return self.model.observations

    def predict_drafts(self, context: StepContext, step_times: CostModel) -> Drafts:
        """Return the survival of the drafts, of the better source for each request."""
        model = self.model
        signal: FloatArray | None = None
        if context.confidence is not None and self._options.confidence and step_times.ready:
            self._admission.late = False
            signal = model.confidence.signal(context.confidence)
            model.confidence.see(signal)
        hazard, from_lookup, ahead = model.hazard(context.slots, context.task), None, None
        without_drafter = False
        if context.lookup_available is not None:
            without_drafter = step_times.ready and self._lookup_alone.pays(context)
            chosen = self._sources.choose(context, hazard, model.lookup)
            context, hazard, from_lookup, ahead = chosen
            if signal is not None and from_lookup is not None:
                signal = np.where(from_lookup, np.nan, signal)
        return Drafts(
            context=context,
            survival=survival_of(hazard),
            notes=() if signal is None else (signal.T,),
            hazard=hazard,
            live=signal,
            from_lookup=from_lookup,
            ahead=ahead,
            without_drafter=without_drafter,
        )

    def forecast_made(self, forecast: StepForecast) -> None:
        """Follow the price of a draft, by which the sources are compared."""
        if forecast.context.lookup_available is not None:
            self._sources.priced(forecast)

    def choose(self, forecast: StepForecast, drafts: Drafts, least_depth: int) -> Choice:
        """Choose the planner's drafts, or those that confidence admits where confidence helps."""
        best = forecast.best
        depth = best.draft_depth
        if not (self._admission.useful and self._trims):
            return Choice(best.verify, depth, "planned")
        if not depth and forecast.context.step % _LOOK_PERIOD == 0:
            # Where nothing is drafted, no confidence is seen, and nothing could be admitted again.
            depth = least_depth
        if not depth:
            return Choice(best.verify, depth, "planned")
        reason = "admitted by confidence"
        if drafts.live is None or drafts.hazard is None:
            return Choice(best.verify, depth, reason)
        verify, survival = self._admission.admit(forecast, drafts.hazard, drafts.live)
        return Choice(verify, depth, reason, survival)

    def learn_acceptance(self, step: FinishedStep, step_times: CostModel) -> bool:
        """Learn from a finished step; whether acceptance has changed."""
        model, outcome, context = self.model, step.outcome, step.context
        signal: FloatArray | None = None
        if step.plan.notes:
            signal = np.ascontiguousarray(step.plan.notes[0].T)
        elif outcome.confidence is not None and self._options.confidence:
            self._admission.late = True
            signal = model.confidence.signal(outcome.confidence)
            model.confidence.see(signal)
        verified, accepted = outcome.verified, outcome.accepted
        looked_up = step.plan.from_lookup
        if looked_up is not None:  # copied drafts say nothing about the drafter
            verified, accepted = np.where(looked_up, 0, verified), np.where(looked_up, 0, accepted)
        self._learn_lookup(step, step_times)
        model.learn_outcomes(outcome.slots, verified, accepted, context.task, signal)
        learned = model.history
        return self._change.add_surprise(
            learned.surprise, learned.expected_variance, learned.observed
        )

    def widen(self, *, centre: bool = False) -> None:
        """Trust the past less; see `Acceptance.widen`."""
        self.model.widen(centre=centre)

    def forget(self, slots: IntArray) -> None:
        """Reset the state of these slots."""
        self.model.forget(slots)
        self._lookup_alone.forget(slots)

    def state(self) -> dict[str, Any]:
        """Return what holds beyond single requests, JSON-compatible."""
        return self.model.state()

    def check_state(self, saved: Any) -> None:
        """Raise PolicyError if this saved state fits no engine at all."""
        try:
            kmax = len(saved["position_effect"])
        except (KeyError, TypeError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        AcceptanceModel(kmax).restore(saved)

    def restore(self, saved: Any) -> None:
        """Adopt a saved state. Raises PolicyError if it does not fit."""
        self.model.restore(saved)

    def _learn_lookup(self, step: FinishedStep, step_times: CostModel) -> None:
        """Learn what a copied draft is worth, from every draft that was found."""
        model, outcome, context = self.model, step.outcome, step.context
        agreed = outcome.lookup_agreed
        if agreed is None or context.lookup_available is None:
            return
        assert context.lookup_match is not None
        if step.plan.mode is Mode.ON:
            survival = survival_of(model.hazard(outcome.slots, context.task))
            copied = survival_of(model.lookup.hazard(outcome.slots, context.lookup_match))
            self._lookup_alone.learn_times(step, step_times, survival, copied)
        model.lookup.learn_copied(
            outcome.slots,
            context.lookup_available,
            context.lookup_match,
            agreed,
            outcome.emitted,
        )


class GoodputPolicy(PlannedPolicy):
    """Maximises expected tokens per second of each step."""

    name: ClassVar[str] = "goodput"
    summary: ClassVar[str] = "most expected tokens per second, learned online (default)"
    Options: ClassVar[type[msgspec.Struct]] = GoodputOptions
    reads_entropy: ClassVar[bool] = False

    def __init__(self, options: GoodputOptions, *, seed: int = 0) -> None:
        self.acceptance = LearnedAcceptance(options)
        super().__init__(
            self.acceptance, options.profile, tpot_allowance=options.tpot_allowance, seed=seed
        )

    def hazard_quality(self) -> dict[str, dict[str, Any]]:
        """How well acceptance is predicted; see `policies.acceptance.hazard_quality`."""
        return {} if self._capability is None else self.acceptance.model.quality.snapshot()
