"""Policy on hazards fitted offline, corrected online and planned exactly.

`adaptive-spec fit` fits the acceptance probability of each draft to recorded steps, by logistic
regression, and the step times where they were recorded; this policy evaluates
the file in numpy and corrects it online (`adaptive_spec.policies.regression.hazards`). The rest is
shared with the default policy (`adaptive_spec.policies.planned`).

Where the drafter reports its confidence, confidence ranks the drafts without a bias of sampled
output. Finished steps alone decide the draft depth, the most drafts to verify, and the least
survival that a draft needs. Confidences then rank the drafts by survival until the number is
reached or the survival falls below the least one. A draft's survival depends on the distributions
at its own and shallower positions, never on its own token, and never rises with depth: the drafts
are prefixes, and sampled output stays unbiased (DSpark, arXiv 2607.05147, appendix A).
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policies.planned import Choice, Drafts, PlannedPolicy
from adaptive_spec.policies.planning.step_forecast import StepForecast, verify_price
from adaptive_spec.policies.regression.hazards import FittedHazards
from adaptive_spec.policies.regression.model_file import RegressionModel, default_model, load_model
from adaptive_spec.policies.step_time.model import CostModel
from adaptive_spec.step import Capability, FinishedStep, FloatArray, IntArray, Level, StepContext

# Good steps come in bursts.
_ROOM = 2
"""Largest ratio of a live budget to the stale plan's drafts."""


def rank_live(values: FloatArray, available: IntArray, forecast: StepForecast) -> IntArray:
    """Return [B] K_i.

    Args:
        values: [Kmax, B] live survival, times the request's weight; not increasing in depth.
        available: [B] available drafts.
        forecast: from finished steps; it sets the number of drafts and the least survival.
    """
    batch = len(available)
    planned = int(forecast.best.verify.sum())
    budget = max(_ROOM * planned, planned + 1)
    eligible = (np.arange(len(values))[:, None] < available) & (values >= verify_price(forecast))
    if np.count_nonzero(eligible) > budget:
        flat = np.where(eligible, values, -1.0).ravel()
        # Ties go to the shallower position, then to request order.
        order = np.argsort(-flat, kind="stable")[:budget]
        chosen: IntArray = np.bincount(order % batch, minlength=batch).astype(np.int64)
        return chosen
    result: IntArray = np.count_nonzero(eligible, axis=0).astype(np.int64)
    return result


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


class FittedAcceptance:
    """Acceptance by fitted hazards, and drafts ranked by them."""

    saved_as = "corrections"

    def __init__(self, model: RegressionModel, options: RegressionOptions) -> None:
        self._options = options
        self._model = model if options.confidence else msgspec.structs.replace(model, drafts=None)

    def start(self, capability: Capability) -> None:
        """Begin on an engine, with the fitted model alone."""
        self._hazards = FittedHazards(
            self._model, capability.max_draft_tokens, tasks=self._options.tasks
        )

    @property
    def observations(self) -> IntArray:
        """[Kmax] number of observations of each position."""
        return self._hazards.observations

    def predict_drafts(self, context: StepContext, step_times: CostModel) -> Drafts:
        """Return the survival of the drafts, by finished steps and with their signals."""
        found = self._hazards.survival(context)
        return Drafts(context=context, survival=found.stale, live=found.live, notes=found.logits)

    def forecast_made(self, forecast: StepForecast) -> None:
        """Do nothing: the drafts have one source."""

    def choose(self, forecast: StepForecast, drafts: Drafts, least_depth: int) -> Choice:
        """Choose as many drafts as planned, or by the ranking of their live survival."""
        context, best, live = forecast.context, forecast.best, drafts.live
        if live is None or context.capability.level is Level.UNIFORM or not best.verify.any():
            return Choice(best.verify, best.draft_depth, "planned")
        weighted = live if forecast.weights is None else live * forecast.weights
        verify = rank_live(weighted, context.draft_available, forecast)
        return Choice(verify, best.draft_depth, "ranked by confidence")

    def learn_acceptance(self, step: FinishedStep, step_times: CostModel) -> bool:
        """Correct the hazards by a finished step; changes are followed, not detected."""
        self._hazards.learn_outcomes(step.outcome, step.plan.notes)
        return False

    def widen(self, *, centre: bool = False) -> None:
        """Trust the corrections less."""
        self._hazards.widen(centre=centre)

    def forget(self, slots: IntArray) -> None:
        """Reset the state of these slots."""
        self._hazards.forget(slots)

    def state(self) -> dict[str, Any]:
        """Return the corrections, JSON-compatible."""
        return self._hazards.state()

    def check_state(self, saved: Any) -> None:
        """Do nothing: the corrections are checked against the engine's Kmax."""

    def restore(self, saved: Any) -> None:
        """Adopt saved corrections. Raises PolicyError if they do not fit."""
        self._hazards.restore(saved)


class RegressionPolicy(PlannedPolicy):
    """Policy that maximises the expected tokens per second of each step with fitted hazards."""

    name: ClassVar[str] = "regression"
    summary: ClassVar[str] = "hazards fitted offline (adaptive-spec fit), corrected online"
    Options: ClassVar[type[msgspec.Struct]] = RegressionOptions

    def __init__(self, options: RegressionOptions, *, seed: int = 0) -> None:
        if options.model is None:
            model = default_model()
            _LOG.info(
                "adaptive_spec: regression: no `model` given, so the shipped model is used; "
                "fit your own with `adaptive-spec fit`"
            )
        else:
            model = load_model(options.model)
        super().__init__(
            FittedAcceptance(model, options),
            options.profile or model.step_times,
            tpot_allowance=options.tpot_allowance,
            seed=seed,
        )
