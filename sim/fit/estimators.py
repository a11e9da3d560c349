"""Fit of a hazard head with scikit-learn, exported as plain arrays.

scikit-learn is imported in here only, when something is fitted: what runs in a server reads the
arrays (`adaptive_spec.policies.regression.heads`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.policies.regression.model_file import Feature, LogisticHead
from adaptive_spec.sim.fit.table import Drafts
from adaptive_spec.step import FloatArray

_REGULARISATION = 10.0
_RANGE = (0.5, 99.5)
"""Percentiles that bound a feature: beyond them the fit is not extrapolated."""
_DIGITS = 6


def fit_head(drafts: Drafts, names: list[str], positions: int) -> LogisticHead:
    """Fit P(accepted | position, features).

    Args:
        drafts: observed ones.
        names: features to use; those that are unknown or constant throughout are left out.
        positions: P; deeper ones count as the last.

    Raises ConfigError without scikit-learn.
    """
    features = [f for f in (_feature(name, drafts.columns[name]) for name in names) if f]
    scaled = np.stack(
        [np.zeros(len(drafts.position)), *(_scaled(f, drafts.columns[f.name]) for f in features)]
    )[1:]
    position = np.minimum(drafts.position, positions - 1).astype(np.float64)
    return _logistic(features, scaled, position, drafts.accepted, positions)


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
