"""Policy on hazards fitted offline, corrected online and planned exactly.

`adaptive-spec fit` fits the acceptance probability of each draft to recorded steps, by logistic
regression, and the step times where they were recorded; this policy evaluates
the file in numpy and corrects it online (`adaptive_spec.policies.regression.hazards`). The rest is
shared with the default policy (`adaptive_spec.policies.planned`).

Where the drafter reports its confidence, confidence ranks the drafts without a bias of sampled
output. Finished steps alone decide the draft depth, the most drafts to verify, and the least
survival that a draft needs. Confidences then rank the drafts by survival until the number is
reached or the survival falls below the least one. A draft's survival depends on the distributions
at its own and shallower positions, never on its own token.
"""

from __future__ import annotations

import logging
from typing import Annotated, ClassVar

import msgspec

from adaptive_spec.policies.planned import PlannedPolicy
from adaptive_spec.policies.planning.step_forecast import StepForecast, forecast_step
from adaptive_spec.policies.regression.hazards import FittedHazards, Survival
from adaptive_spec.policies.regression.live_ranking import rank_live
from adaptive_spec.policies.regression.model_file import default_model, load_model
from adaptive_spec.step import Capability, FinishedStep, Level, Mode, SpecPlan, StepContext

_LOG = logging.getLogger(__name__)


class RegressionOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `regression`."""

    model: str | None = None
    """File made by `adaptive-spec fit`. Absent: the shipped model, which was fitted to a small pair
    of models and needs more correction.
    """
    profile: str | None = None
    """File with an initial cost profile; takes precedence over the step times in the model."""
    tasks: list[str] = []
    """Task labels in the order of the engine's task numbers, for a model with task effects."""
    confidence: bool = True
    """Rank drafts by the drafter's confidence where it is reported and the model knows it."""
    tpot_allowance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.02
    """Largest relative lengthening of a step for requests behind their TPOT target; 0 ignores
    targets."""


class RegressionPolicy(PlannedPolicy[Survival]):
    """Policy that maximises the expected tokens per second of each step with fitted hazards."""

    name: ClassVar[str] = "regression"
    summary: ClassVar[str] = "hazards fitted offline (adaptive-spec fit), corrected online"
    Options: ClassVar[type[msgspec.Struct]] = RegressionOptions
    _saved_as: ClassVar[str] = "corrections"

    def __init__(self, options: RegressionOptions, *, seed: int = 0) -> None:
        if options.model is None:
            self._model = default_model()
            _LOG.info(
                "adaptive_spec: regression: no `model` given, so the shipped model is used; "
                "fit your own with `adaptive-spec fit`"
            )
        else:
            self._model = load_model(options.model)
        super().__init__(options.profile or self._model.step_times, options.tpot_allowance, seed)
        self._options = options

    def _make_hazards(self, capability: Capability) -> FittedHazards:
        model, options = self._model, self._options
        if not options.confidence:
            model = msgspec.structs.replace(model, drafts=None)
        self._fitted = FittedHazards(model, capability.max_draft_tokens, tasks=options.tasks)
        return self._fitted

    def _see(self, context: StepContext) -> tuple[StepContext, Survival]:
        return context, self._fitted.survival(context)

    def _forecast(self, context: StepContext, seen: Survival) -> StepForecast:
        return forecast_step(context, seen.stale, self._cost)

    def _plan_on(self, forecast: StepForecast, seen: Survival) -> SpecPlan:
        """Rank the planned drafts by confidence; sometimes explore one draft more."""
        context, best, live = forecast.context, forecast.best, seen.live
        verify, reason = best.verify, "planned"
        if live is not None and context.capability.level is not Level.UNIFORM and verify.any():
            weighted = live if forecast.weights is None else live * forecast.weights
            verify = rank_live(weighted, context.draft_available, forecast)
            reason = "ranked by confidence"
        self._last_depth = best.draft_depth
        explored = self._exploring.extended(
            forecast, verify, best.draft_depth, self._fitted.observations
        )
        if explored.extended:
            reason = "exploring one deeper"
        return forecast.plan(explored.verify, explored.depth, Mode.ON, reason, explored.propensity)

    def _with_notes(self, plan: SpecPlan, seen: Survival) -> SpecPlan:
        return msgspec.structs.replace(plan, notes=seen.logits)

    def _learn(self, step: FinishedStep) -> None:
        self._fitted.learn(step.outcome, step.plan.notes)
