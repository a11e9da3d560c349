"""`regression`: plans exactly, with acceptance as `adaptive-spec fit` found it in records.

The draft at position j of request i, its predecessors accepted, is accepted with
logit h_ij = b_j + u x_i + v y_ij, by one logistic regression without and one with y_ij, the logit
of the drafter's maximum probability. x_i is the sum of accepted - a_j over the observed drafts,
1..min(accepted + 1, verified) of a step, over 1 + the sum of a_j (1 - a_j), with a_j the average
hazard of a position; both sums fade. Only step times are learned on, from those recorded.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np

from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.errors import PolicyError
from adaptive_spec.per_request import floats
from adaptive_spec.policies.acceptance import LEAST_HAZARD
from adaptive_spec.policies.cost_profile import CostProfile, load_profile
from adaptive_spec.policies.kernels import load_kernels
from adaptive_spec.policies.optional.profile_prior import prior_of_profile
from adaptive_spec.policies.planning.search import value_of
from adaptive_spec.policies.planning.step_forecast import forecast_step, verify_price
from adaptive_spec.policies.step_times import StepTimes
from adaptive_spec.policy_helpers import StatelessPolicy, fixed_plan
from adaptive_spec.step import (
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
)

FADE = 0.98
"""Share of the sums behind x that a step leaves."""
MOST, DEEPEST = 4.0, 1024
"""Bounds of x (logits), beyond which nothing is extrapolated, and of positions."""
LEAST = LEAST_HAZARD
_LOG = logging.getLogger(__name__)
Logit = Annotated[float, msgspec.Meta(ge=-50.0, le=50.0)]
Positions = msgspec.Meta(min_length=1, max_length=DEEPEST)


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A logistic regression: b_j [P], deeper positions as the last, u and v."""

    intercepts: Annotated[list[Logit], Positions]
    history: Logit
    confidence: Logit = 0.0

    def logits(self, at: IntArray, x: FloatArray, y: FloatArray | float = 0.0) -> FloatArray:
        """Return the logits of drafts at positions `at`; all shapes must fit."""
        b = np.array(self.intercepts)[np.minimum(at, len(self.intercepts) - 1)]
        found: FloatArray = b + self.history * x + self.confidence * y
        return found


class RegressionModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model file: hazards and, where step times were recorded, a cost profile.

    Attributes:
        average: [P] a_j.
        history, drafts: regressions without and with confidence; null where none was recorded.
        step_time_error, calibration: on what was held out, for people.
    """

    schema: Literal[2] = 2
    content: Literal["adaptive-spec hazards"] = "adaptive-spec hazards"
    name: str = ""
    source: str = ""
    average: Annotated[list[Annotated[float, msgspec.Meta(ge=LEAST, le=1 - LEAST)]], Positions]
    history: Head
    drafts: Head | None = None
    step_times: CostProfile | None = None
    step_time_error: float | None = None
    calibration: dict[str, Any] | None = None


def load_model(path: str | Path) -> RegressionModel:
    """Read a model file. Raises PolicyError naming the file, the fault and the remedy."""
    try:
        model: RegressionModel = decode_json(read_small_file(path), RegressionModel)
    except (OSError, ValueError) as error:
        fault = getattr(error, "strerror", None) or error
        remedy = "make one with `adaptive-spec fit TRACE... --out FILE`"
        raise PolicyError(f"regression model {str(path)!r}: {fault}; {remedy}") from error
    return model


class History:
    """How requests have done, by slot, held against a_j [P]; deeper positions as the last."""

    def __init__(self, average: list[float]) -> None:
        a = np.array(average)[np.minimum(np.arange(DEEPEST), len(average) - 1)]
        self._seen = np.cumsum(np.append([[0.0, 0.0]], np.stack([a, a * (1.0 - a)], 1), 0), 0)
        self.sums = floats(0.0, 2)

    def x(self, slots: IntArray) -> FloatArray:
        """Return x [B]."""
        sums = self.sums[slots]
        return np.clip(sums[:, 0] / (1.0 + sums[:, 1]), -MOST, MOST)

    def learn(self, slots: IntArray, verified: IntArray, accepted: IntArray) -> None:
        """Learn one step's outcomes [B]."""
        sums = FADE * self.sums[slots]
        sums += [-1.0, 1.0] * self._seen[np.minimum(accepted + 1, verified)]
        sums[:, 0] += accepted
        self.sums[slots] = sums


def logit_of(probability: FloatArray) -> FloatArray:
    """Return bounded logits, y of the drafter's maximum probabilities; nan stays nan."""
    return -np.log(1.0 / np.clip(probability, 1e-4, 1.0 - 1e-4) - 1.0)


def survival_of(logits: FloatArray) -> FloatArray:
    """Return the probability [Kmax, B] that all drafts up to a position are accepted."""
    hazard = np.clip(1.0 / (1.0 + np.exp(-logits)), LEAST, 1.0 - LEAST)
    return np.multiply.accumulate(hazard, axis=0).astype(np.float64, copy=False)


class RegressionOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `regression`."""

    model: str | None = None
    """File made by `adaptive-spec fit`; without one, a fit to records of two small models."""
    profile: str | None = None
    """File with a cost profile to start from, in place of the step times in the model."""
    confidence: bool = True
    """Admit drafts by the drafter's confidence where it is reported and the model knows it."""


class RegressionPolicy(StatelessPolicy):
    """Maximises the expected tokens per second of each step with fitted hazards."""

    name: ClassVar[str] = "regression"
    summary: ClassVar[str] = "hazards fitted offline (adaptive-spec fit), exact plans"
    Options: ClassVar[type[msgspec.Struct]] = RegressionOptions
    reads_entropy: ClassVar[bool] = False
    prepare = staticmethod(load_kernels)

    def __init__(self, options: RegressionOptions, *, seed: int = 0) -> None:
        if options.model is None:
            _LOG.info("adaptive_spec: regression: shipped model; `adaptive-spec fit` makes yours")
        model = load_model(options.model or Path(__file__).with_name("regression_model.json"))
        self._profile = load_profile(options.profile) if options.profile else model.step_times
        self._head, self._live = model.history, model.drafts if options.confidence else None
        self._history = History(model.average)
        self._times: StepTimes | None = None
        self._depth = 0

    def plan(self, context: StepContext) -> SpecPlan:
        """Verify and draft what promises the most tokens per second."""
        capability, batch = context.capability, context.batch_size
        if self._times is None:
            self._times, self._depth = StepTimes(capability), context.engine_k
            if self._profile is not None:
                self._times.restore(prior_of_profile(self._profile, self._times))
        if not batch:
            plan = fixed_plan(context, self._depth, "nothing decodes")
            return msgspec.structs.replace(plan, mode=Mode.ON)  # the drafter reads the prompts
        at = np.arange(capability.max_draft_tokens)[:, None]
        x = self._history.x(context.slots)
        logits = self._head.logits(at, x)
        survival, times = survival_of(logits), self._times
        verifying, drafting = times.curves(batch, int(context.context_tokens.sum()))
        scale, uniform = times.scale or 1.0, capability.level is Level.UNIFORM
        seconds = scale * verifying + context.shared_seconds, scale * drafting
        prompts = times.prompt_seconds(context.prefill_tokens)
        forecast = forecast_step(context, survival, *seconds, prompts)
        best, weights, tokens = forecast.best, forecast.weights, forecast.best_tokens
        verify, self._depth, reason = best.verify, best.draft_depth, "planned"
        if self._live and context.confidence is not None and not uniform and verify.any():
            # Confidence admits at the price that finished steps have set: output stays unbiased.
            y = logit_of(context.confidence.T)
            survival = survival_of(np.where(np.isnan(y), logits, self._live.logits(at, x, y)))
            worth = survival if weights is None else survival * weights
            pays = (worth >= verify_price(forecast)).sum(axis=0)
            verify, reason = np.minimum(context.draft_available, pays), "admitted by confidence"
            tokens = batch + value_of(survival, verify)
        mode = Mode.ON if self._depth or verify.any() else Mode.OFF_WARM
        return forecast.predicted_plan(verify, self._depth, mode, reason, tokens=tokens)

    def observe(self, step: FinishedStep) -> None:
        """Learn how requests do, and step times."""
        outcome = step.outcome
        self._history.learn(outcome.slots, outcome.verified, outcome.accepted)
        if self._times is not None:
            self._times.learn(outcome, cold=False)

    def forget(self, slots: IntArray) -> None:
        """Drop what is known of requests that have ended."""
        self._history.sums.reset(slots)
