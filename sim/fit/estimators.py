"""Fit of a hazard head with scikit-learn, exported as plain arrays.

scikit-learn is imported in here only, when something is fitted: what runs in a server reads the
arrays (`adaptive_spec.policies.regression.heads`).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.policies.regression.model_file import (
    BoostingHead,
    Feature,
    Head,
    LogisticHead,
)
from adaptive_spec.sim.fit.table import Drafts
from adaptive_spec.step import FloatArray

Kind: TypeAlias = Literal["logistic", "boosting"]

TREES, TREE_DEPTH = 24, 3
"""Small, because all trees are evaluated for every draft position in every step."""
_LEARNING_RATE = 0.25
_REGULARISATION = 10.0
_FEWEST_PER_LEAF = 100
_RANGE = (0.5, 99.5)
"""Percentiles that bound a feature: beyond them the fit is not extrapolated."""
_DIGITS = 6


def fit_head(kind: Kind, drafts: Drafts, names: list[str], positions: int, *, seed: int) -> Head:
    """Fit P(accepted | position, features).

    Args:
        kind: logistic regression, or gradient boosting (trees of depth 3).
        drafts: observed ones.
        names: features to use; those that are unknown or constant throughout are left out.
        positions: P; deeper ones count as the last.
        seed: of the boosting's subsamples.

    Raises ConfigError without scikit-learn.
    """
    features = [f for f in (_feature(name, drafts.columns[name]) for name in names) if f]
    scaled = np.stack(
        [np.zeros(len(drafts.position)), *(_scaled(f, drafts.columns[f.name]) for f in features)]
    )[1:]
    position = np.minimum(drafts.position, positions - 1).astype(np.float64)
    if kind == "logistic":
        return _logistic(features, scaled, position, drafts.accepted, positions)
    return _boosting(features, scaled, position, drafts.accepted, seed)


def _feature(name: str, column: FloatArray) -> Feature | None:
    known = column[np.isfinite(column)]
    if not len(known):
        return None
    low, high = (float(value) for value in np.percentile(known, _RANGE))
    inside = np.clip(known, low, high)
    scale = float(inside.std())
    if scale < 1e-6:
        return None
    return Feature(
        name=name,
        mean=_rounded(float(inside.mean())),
        scale=_rounded(scale),
        low=_rounded(low),
        high=_rounded(high),
    )


def _scaled(feature: Feature, column: FloatArray) -> FloatArray:
    scaled = (np.clip(column, feature.low, feature.high) - feature.mean) / feature.scale
    result: FloatArray = np.nan_to_num(scaled, nan=0.0)
    return result


def _logistic(
    features: list[Feature],
    scaled: FloatArray,
    position: FloatArray,
    accepted: FloatArray,
    positions: int,
) -> LogisticHead:
    linear = _scikit("linear_model")
    at = (position[:, None] == np.arange(positions)).astype(np.float64)
    design = np.concatenate([at, scaled.T, scaled.T * position[:, None]], axis=1)
    model = linear.LogisticRegression(C=_REGULARISATION, fit_intercept=False, max_iter=1000)
    model.fit(design, accepted > 0.5)
    weights = [_rounded(float(value)) for value in model.coef_[0]]
    count = len(features)
    return LogisticHead(
        features=features,
        intercepts=weights[:positions],
        weights=weights[positions : positions + count],
        slopes=weights[positions + count :],
    )


def _boosting(
    features: list[Feature],
    scaled: FloatArray,
    position: FloatArray,
    accepted: FloatArray,
    seed: int,
) -> BoostingHead:
    ensemble = _scikit("ensemble")
    model = ensemble.GradientBoostingClassifier(
        n_estimators=TREES,
        max_depth=TREE_DEPTH,
        learning_rate=_LEARNING_RATE,
        subsample=0.7,
        min_samples_leaf=_FEWEST_PER_LEAF,
        random_state=seed,
    )
    design = np.concatenate([position[:, None], scaled.T], axis=1)
    model.fit(design, accepted > 0.5)
    share = float(np.mean(accepted > 0.5))
    trees = [_complete(stage[0].tree_, TREE_DEPTH) for stage in model.estimators_]
    return BoostingHead(
        features=features,
        base=_rounded(float(np.log(share / (1.0 - share)))),
        depth=TREE_DEPTH,
        node_feature=[tree[0] for tree in trees],
        threshold=[tree[1] for tree in trees],
        leaf=[[_rounded(_LEARNING_RATE * value) for value in tree[2]] for tree in trees],
    )


def _complete(tree: Any, depth: int) -> tuple[list[int], list[float], list[float]]:
    """A tree of scikit-learn as a complete one: a leaf above the bottom decides nothing below."""
    inner = 2**depth - 1
    features, thresholds = [-1] * inner, [0.0] * inner
    leaves = [0.0] * (inner + 1)

    def fill(place: int, node: int) -> None:
        is_leaf = tree.children_left[node] < 0
        if place >= inner:
            leaves[place - inner] = float(tree.value[node].ravel()[0])
            return
        if not is_leaf:
            features[place] = int(tree.feature[node]) - 1  # column 0 is the position
            thresholds[place] = _rounded(float(tree.threshold[node]))
        fill(2 * place + 1, node if is_leaf else int(tree.children_left[node]))
        fill(2 * place + 2, node if is_leaf else int(tree.children_right[node]))

    fill(0, 0)
    return features, thresholds, leaves


def _scikit(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise ConfigError(
            "fitting needs scikit-learn: pip install 'adaptive-spec[fit]'; the fitted model does "
            "not need it"
        ) from error


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
