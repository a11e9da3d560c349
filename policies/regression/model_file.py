"""The model file of the `regression` policy: JSON with a schema version, checked when read.

`adaptive-spec fit` writes it; `docs/fit.md` describes it. A hazard head is a function from
features to logits, as plain arrays: no code and no pickled object is ever read.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from adaptive_spec.bounded_read import read_small_file
from adaptive_spec.cost.profile import CostProfile
from adaptive_spec.errors import PolicyError
from adaptive_spec.policies.regression.features import (
    DRAFT_FEATURES,
    POSITION,
    REQUEST_FEATURES,
)

MOST_NODES = 4096
"""Of all trees of a head: what can be evaluated within a step."""
DEEPEST_TREE = 6
_LARGEST_LOGIT = 50.0

Probability = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class Feature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a feature enters a head: (clip(x, low, high) - mean) / scale, 0 where x is unknown.

    Values outside the range that was seen count as its end, so that a fit is never extrapolated.
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
        features: F of them.
        intercepts: [P].
        weights, slopes: [F].
    """

    features: list[Feature]
    intercepts: Annotated[list[float], msgspec.Meta(min_length=1)]
    weights: list[float]
    slopes: list[float]

    def fault(self, positions: int) -> str:
        """What does not fit together; empty if all does."""
        if len(self.intercepts) != positions:
            return f"`intercepts` has {len(self.intercepts)} entries for {positions} positions"
        if not len(self.features) == len(self.weights) == len(self.slopes):
            return "`features`, `weights` and `slopes` differ in length"
        return _bad_number([*self.intercepts, *self.weights, *self.slopes])


class BoostingHead(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="boosting"
):
    """logit h = base + sum over trees of the leaf that (position, x) falls into.

    All trees are complete, of the same depth d: node n has children 2n + 1 (x <= threshold) and
    2n + 2, the first 2^d - 1 nodes decide, and the leaves follow from left to right.

    Attributes:
        features: F of them; `node_feature` counts from here, -1 is the position.
        base: logit.
        depth: d of every tree.
        node_feature, threshold: [T][2^d - 1].
        leaf: [T][2^d], learning rate included.
    """

    features: list[Feature]
    base: float
    depth: Annotated[int, msgspec.Meta(ge=1, le=DEEPEST_TREE)]
    node_feature: list[list[Annotated[int, msgspec.Meta(ge=-1)]]]
    threshold: list[list[float]]
    leaf: list[list[float]]

    def fault(self, positions: int) -> str:
        """What does not fit together; empty if all does."""
        del positions
        nodes, leaves = 2**self.depth - 1, 2**self.depth
        trees = len(self.leaf)
        if not trees == len(self.threshold) == len(self.node_feature):
            return "`node_feature`, `threshold` and `leaf` differ in length"
        if trees * nodes > MOST_NODES:
            return f"{trees * nodes} nodes are more than {MOST_NODES}, too slow for a step"
        for tree in range(trees):
            if len(self.node_feature[tree]) != nodes or len(self.threshold[tree]) != nodes:
                return f"tree {tree} needs {nodes} nodes at depth {self.depth}"
            if len(self.leaf[tree]) != leaves:
                return f"tree {tree} needs {leaves} leaves at depth {self.depth}"
            if max(self.node_feature[tree]) >= len(self.features):
                return f"tree {tree} uses a feature that is not listed"
        numbers = [self.base]
        for row in (*self.threshold, *self.leaf):
            numbers += row
        return _bad_number(numbers)


Head: TypeAlias = LogisticHead | BoostingHead


class PositionCalibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How well a head predicts one position on requests it has not been fitted to.

    Attributes:
        position: from 1; 0 stands for all together.
        drafts: that reached the position.
        accepted: fraction of them.
        predicted: mean prediction.
        ece: expected calibration error, see `adaptive_spec.sim.fit.calibration`.
        auc: null where all were accepted, or none.
    """

    position: Annotated[int, msgspec.Meta(ge=0)]
    drafts: int
    accepted: float
    predicted: float
    ece: float
    auc: float | None


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of both heads, over the same held-out requests.

    Attributes:
        requests, held_out: requests fitted to, and requests measured on.
        average: of a model that knows only the position.
        history: of the head that uses finished steps only.
        drafts: of the head that uses draft signals as well, over the drafts that have one.
        history_there: of the first head over those same drafts.
    """

    requests: int
    held_out: int
    average: list[PositionCalibration]
    history: list[PositionCalibration]
    drafts: list[PositionCalibration] = []
    history_there: list[PositionCalibration] = []


class RegressionModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Hazards and, where step times were recorded, a cost profile.

    Attributes:
        schema: version of this format.
        content: marks the file as one of these.
        name: for people.
        source: what it was fitted to.
        average: [P] average hazard by position, which history is measured against.
        request_variance: variance between requests that the features leave, in logits^2.
        tasks: effect of each task label, in logits.
        history: uses finished steps and request features only.
        drafts: uses draft signals too; null if none was recorded.
        step_times: a cost profile; null if no times were recorded.
        step_time_error: median relative error of it on held-out steps.
        calibration: on held-out requests.
    """

    schema: Literal[1] = 1
    content: Literal["adaptive-spec hazards"] = "adaptive-spec hazards"
    name: str = ""
    source: str = ""
    average: Annotated[list[Probability], msgspec.Meta(min_length=1)]
    request_variance: Annotated[float, msgspec.Meta(gt=0)] = 0.1
    tasks: dict[str, float] = {}
    history: Head
    drafts: Head | None = None
    step_times: CostProfile | None = None
    step_time_error: float | None = None
    calibration: Calibration | None = None

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
    """Read a model file. Raises PolicyError naming the file, what is wrong and what to do."""
    try:
        return msgspec.json.decode(read_small_file(path), type=RegressionModel)
    except OSError as error:
        raise PolicyError(
            f"regression model {str(path)!r}: {error.strerror or error}; "
            "make one with `adaptive-spec fit SOURCE... --out FILE`"
        ) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise PolicyError(
            f"regression model {str(path)!r}: {error}; "
            "make it anew with `adaptive-spec fit SOURCE... --out FILE`"
        ) from error


def default_model() -> RegressionModel:
    """The model that comes with the package, fitted to our own records of two small models."""
    return load_model(Path(__file__).with_name("default_model.json"))


def _bad_feature(feature: Feature) -> str:
    if bad := _bad_number([feature.mean, feature.scale, feature.low, feature.high], 1e9):
        return bad
    return "" if feature.low <= feature.high else "`low` is above `high`"


def _bad_number(values: list[float], limit: float = _LARGEST_LOGIT) -> str:
    for value in values:
        if not math.isfinite(value) or abs(value) > limit:
            return f"{value} is no sensible number"
    return ""


__all__ = [
    "POSITION",
    "BoostingHead",
    "Calibration",
    "Feature",
    "Head",
    "LogisticHead",
    "PositionCalibration",
    "RegressionModel",
    "default_model",
    "load_model",
]
