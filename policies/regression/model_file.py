"""Model file of the `regression` policy: validated JSON with a schema version.

`adaptive-spec fit` writes the file; `docs/simulator.md` describes it. A hazard head is a function
from features to logits, stored as plain arrays: the reader never loads code or pickled objects, and
evaluates them in numpy (`HeadEvaluator`).
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policies.regression.features import (
    DRAFT_FEATURES,
    REQUEST_FEATURES,
)
from adaptive_spec.step import FloatArray

_LARGEST_LOGIT = 50.0

Probability = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class Feature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Scaling of a feature: (clip(x, low, high) - mean) / scale, 0 where x is unknown.

    Values outside the fitted range are clipped to it, so that a fit is never extrapolated.
    """

    name: str
    mean: float
    scale: Annotated[float, msgspec.Meta(gt=0)]
    low: float
    high: float


class LogisticHead(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="logistic"
):
    """logit h = intercept_j + sum_f (weight_f + slope_f min(j, P - 1)) x_f, j from 0.

    Attributes:
        features: F features.
        intercepts: [P] intercept of each position.
        weights, slopes: [F] coefficients of each feature.
    """

    features: list[Feature]
    intercepts: Annotated[list[float], msgspec.Meta(min_length=1)]
    weights: list[float]
    slopes: list[float]

    def fault(self, positions: int) -> str:
        """Describe the first inconsistency; empty if the head is consistent."""
        if len(self.intercepts) != positions:
            return f"`intercepts` has {len(self.intercepts)} entries for {positions} positions"
        if not len(self.features) == len(self.weights) == len(self.slopes):
            return "`features`, `weights` and `slopes` differ in length"
        return _bad_number([*self.intercepts, *self.weights, *self.slopes])


class RegressionModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Hazard model and, where step times were recorded, a cost profile.

    Attributes:
        schema: version of this format.
        content: marker of the file type.
        name: name for people.
        source: data of the fit.
        average: [P] average hazard by position, the reference of the history features.
        request_variance: remaining variance between requests (logits^2).
        tasks: effect of each task label, in logits.
        history: head on finished steps and request features only.
        drafts: head with draft signals; null if none were recorded.
        step_times: a cost profile; null if no times were recorded.
        step_time_error: median relative error of `step_times` on held-out steps.
        calibration: report on held-out requests for people (`adaptive_spec.sim.fit.calibration`).
    """

    schema: Literal[1] = 1
    content: Literal["adaptive-spec hazards"] = "adaptive-spec hazards"
    name: str = ""
    source: str = ""
    average: Annotated[list[Probability], msgspec.Meta(min_length=1)]
    request_variance: Annotated[float, msgspec.Meta(gt=0)] = 0.1
    tasks: dict[str, float] = {}
    history: LogisticHead
    drafts: LogisticHead | None = None
    step_times: CostProfile | None = None
    step_time_error: float | None = None
    calibration: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        allowed = set(REQUEST_FEATURES)
        for place, head in (("history", self.history), ("drafts", self.drafts)):
            if head is None:
                continue
            names = [feature.name for feature in head.features]
            unknown = sorted(set(names) - allowed)
            if unknown or len(names) != len(set(names)):
                what = f"unknown feature {unknown[0]!r}" if unknown else "a feature listed twice"
                raise ValueError(f"`{place}`: {what}; known are {', '.join(sorted(allowed))}")
            for feature in head.features:
                if bad := _bad_feature(feature):
                    raise ValueError(f"`{place}`: feature {feature.name!r}: {bad}")
            if fault := head.fault(len(self.average)):
                raise ValueError(f"`{place}`: {fault}")
            allowed |= set(DRAFT_FEATURES)
        if bad := _bad_number(list(self.tasks.values())):
            raise ValueError(f"`tasks`: {bad}")


def load_model(path: str | os.PathLike[str]) -> RegressionModel:
    """Read a model file. Raises PolicyError naming the file, the fault and the remedy."""
    try:
        model: RegressionModel = decode_json(read_small_file(path), RegressionModel)
    except OSError as error:
        raise PolicyError(
            f"regression model {str(path)!r}: {error.strerror or error}; "
            "make one with `adaptive-spec fit SOURCE... --out FILE`"
        ) from error
    except ValueError as error:
        raise PolicyError(
            f"regression model {str(path)!r}: {error}; "
            "make it anew with `adaptive-spec fit SOURCE... --out FILE`"
        ) from error
    return model


def default_model() -> RegressionModel:
    """Load the model shipped with the package, fitted to our own records of two small models."""
    return load_model(Path(__file__).with_name("default_model.json"))


def _bad_feature(feature: Feature) -> str:
    if bad := _bad_number([feature.mean, feature.scale, feature.low, feature.high], 1e9):
        return bad
    return "" if feature.low <= feature.high else "`low` is above `high`"


def _bad_number(values: list[float], limit: float = _LARGEST_LOGIT) -> str:
    for value in values:
        if not math.isfinite(value) or abs(value) > limit:
            return f"{value} is out of range"
    return ""


Columns = dict[str, FloatArray]
"""Features by name: [B], or [Kmax, B] if they differ by position. nan means unknown."""


class HeadEvaluator:
    """A head ready for evaluation; positions beyond the fitted ones use the last one."""

    def __init__(self, head: LogisticHead, kmax: int) -> None:
        self._head = head
        position = np.minimum(np.arange(kmax), len(head.intercepts) - 1)
        self._intercepts: FloatArray = np.array(head.intercepts)[position]
        self._weights: list[FloatArray] = [
            weight + slope * position
            for weight, slope in zip(head.weights, head.slopes, strict=True)
        ]

    def logits(self, columns: Columns, batch: int) -> FloatArray:
        """Return [Kmax, B] logits for these features; a missing feature is unknown."""
        result: FloatArray = np.repeat(self._intercepts[:, None], batch, axis=1)
        for feature, weights in zip(self._head.features, self._weights, strict=True):
            values = columns.get(feature.name)
            if values is not None:
                result += weights[:, None] * _scaled(feature, values)
        return result


def _scaled(feature: Feature, values: FloatArray) -> FloatArray:
    """Return the clipped and scaled feature; 0 for an unknown value."""
    scaled: FloatArray = np.minimum(np.maximum(values, feature.low), feature.high)
    scaled -= feature.mean
    scaled /= feature.scale
    unknown = np.isnan(scaled)
    if unknown.any():
        scaled[unknown] = 0.0
    return scaled
