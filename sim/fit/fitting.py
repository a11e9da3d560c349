"""Fit of the `regression` policy's model file, measured on held-out requests.

scikit-learn is imported only when something is fitted: what runs in a server reads the exported
arrays (`adaptive_spec.policies.regression.model_file`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.errors import DataError, missing_extra
from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policies.regression.features import DRAFT_FEATURES, REQUEST_FEATURES
from adaptive_spec.policies.regression.model_file import (
    Feature,
    HeadEvaluator,
    LogisticHead,
    RegressionModel,
)
from adaptive_spec.policies.two_beliefs.optional.profile_prior import profile_of
from adaptive_spec.policies.two_beliefs.step_times import StepTimes
from adaptive_spec.sim.fit.calibration import Calibration, calibration_by_position
from adaptive_spec.sim.fit.sources import Steps, joined, read_source
from adaptive_spec.sim.fit.table import (
    Drafts,
    average_hazards,
    observed_drafts,
    seen_by_position,
)
from adaptive_spec.step import Capability, FloatArray, IntArray, Level, StepOutcome

_FEWEST_REQUESTS = 10
_FEWEST_DRAFTS = 500
_FEWEST_AT_POSITION = 100
_MOST_DRAFTS = 400_000
_TASK_STRENGTH = 20.0
_VARIANCE_RANGE = (0.02, 1.0)
_FEWEST_TIMED_STEPS = 60
_REGULARISATION = 10.0
_RANGE = (0.5, 99.5)
"""Percentiles that bound a feature: beyond them the fit is not extrapolated."""
_DIGITS = 6


def fit_sources(
    sources: Sequence[Path],
    *,
    held_out: float = 0.3,
    use_tasks: bool = False,
    drafter_list: str = "eagle",
    kmax: int = 8,
    seed: int = 0,
    name: str = "",
) -> RegressionModel:
    """Read sources and fit to them; see `fit_steps`. Raises DataError or ConfigError."""
    parts: list[Steps] = []
    times: list[StepOutcome] = []
    for number, source in enumerate(sources):
        found = read_source(source, drafter_list=drafter_list, kmax=kmax, seed=seed + number)
        parts.append(found.steps)
        times += found.times
    if not parts:
        raise DataError("nothing to fit to: name a step trace, an npz of steps or lists")
    names = ", ".join(source.name for source in sources[:3])
    if len(sources) > 3:
        names += f" and {len(sources) - 3} more"
    model = fit_steps(
        joined(parts), held_out=held_out, use_tasks=use_tasks, seed=seed, source=names
    )
    profile, error = fit_step_times(times, source=names)
    return msgspec.structs.replace(model, name=name, step_times=profile, step_time_error=error)


def fit_steps(
    steps: Steps,
    *,
    held_out: float,
    use_tasks: bool = False,
    seed: int = 0,
    source: str = "",
) -> RegressionModel:
    """Fit hazards; calibration is measured on requests that the measured fit has not seen.

    Args:
        steps: all of them.
        held_out: fraction of the requests, in (0, 1), left out of the fit.
        use_tasks: use task labels; only if the server knows them too.
        seed: of the split.
        source: for the file.

    Raises DataError if there is too little to fit to.
    """
    random = np.random.default_rng(seed)
    shuffled: IntArray = random.permutation(steps.requests).astype(np.int64)
    aside = round(held_out * steps.requests)
    if steps.requests < _FEWEST_REQUESTS or not 0 < aside < steps.requests:
        raise DataError(
            f"{source}: {steps.requests} requests with {aside} held out; at least "
            f"{_FEWEST_REQUESTS} are needed, and some on either side"
        )
    train, test = steps.of_requests(shuffled[aside:]), steps.of_requests(shuffled[:aside])
    counts = seen_by_position(train)
    if counts.sum() < _FEWEST_DRAFTS:
        raise DataError(
            f"{source}: {int(counts.sum())} drafts were observed in the requests to fit to; at "
            f"least {_FEWEST_DRAFTS} are needed: record longer, with speculation on"
        )
    positions = max(int(np.count_nonzero(counts >= _FEWEST_AT_POSITION)), 1)
    average = average_hazards(train, positions)
    tasks = _task_effects(train, average) if use_tasks else np.full(len(train.labels) + 1, np.nan)
    drafts = _at_most(observed_drafts(train, average, tasks), random)
    if not 0.0 < drafts.accepted.mean() < 1.0:
        raise DataError(f"{source}: every draft had the same outcome; there is nothing to fit")
    history = fit_head(drafts, list(REQUEST_FEATURES), positions)
    live: LogisticHead | None = None
    shown = np.isfinite(drafts.columns["confidence"])
    if shown.sum() >= _FEWEST_DRAFTS:
        names = [*REQUEST_FEATURES, *DRAFT_FEATURES]
        live = fit_head(drafts.only(np.flatnonzero(shown)), names, positions)
    measured = observed_drafts(test, average, tasks)
    calibration = _calibration(history, live, measured, average, train.requests, test.requests)
    known = {
        label: round(float(effect), 4)
        for label, effect in zip(train.labels, tasks, strict=False)
        if np.isfinite(effect)
    }
    return RegressionModel(
        source=f"{len(steps.verified)} steps of {steps.requests} requests: {source}",
        average=[round(float(value), 5) for value in average],
        request_variance=_request_variance(drafts, _predict(history, drafts, positions)),
        tasks=known,
        history=history,
        drafts=live,
        calibration=msgspec.to_builtins(calibration),
    )


def _predict(head: LogisticHead, drafts: Drafts, positions: int) -> FloatArray:
    """[N] probability that each draft is accepted, by the code that runs online."""
    logits = HeadEvaluator(head, positions).logits(drafts.columns, len(drafts.position))
    row = np.minimum(drafts.position, positions - 1)
    chosen = logits[row, np.arange(len(row))]
    result: FloatArray = 1.0 / (1.0 + np.exp(-chosen))
    return result


def _calibration(
    history: LogisticHead,
    live: LogisticHead | None,
    measured: Drafts,
    average: FloatArray,
    requests: int,
    held_out: int,
) -> Calibration:
    positions = len(average)
    position, accepted = measured.position, measured.accepted
    by_history = _predict(history, measured, positions)
    flat = average[np.minimum(position, positions - 1)]
    result = Calibration(
        requests=requests,
        held_out=held_out,
        average=calibration_by_position(flat, accepted, position),
        history=calibration_by_position(by_history, accepted, position),
    )
    shown = np.isfinite(measured.columns["confidence"])
    if live is None or not shown.any():
        return result
    there = measured.only(np.flatnonzero(shown))
    return msgspec.structs.replace(
        result,
        drafts=calibration_by_position(
            _predict(live, there, positions), there.accepted, there.position
        ),
        history_there=calibration_by_position(by_history[shown], there.accepted, there.position),
    )


def _task_effects(steps: Steps, average: FloatArray) -> FloatArray:
    """[labels + 1] score of each label around the average, shrunk; the last, for none, is nan."""
    seen = np.minimum(steps.accepted + 1, steps.verified)
    last = len(average) - 1
    effects = np.full(len(steps.labels) + 1, np.nan)
    for label in range(len(steps.labels)):
        here = steps.task == label
        score = information = 0.0
        for position in range(int(seen[here].max(initial=0))):
            hazard = float(average[min(position, last)])
            count = int(np.count_nonzero(seen[here] > position))
            score += int(np.count_nonzero(steps.accepted[here] > position)) - hazard * count
            information += hazard * (1.0 - hazard) * count
        if information > 0.0:
            effects[label] = score / (_TASK_STRENGTH + information)
    return effects


def _request_variance(drafts: Drafts, predicted: FloatArray) -> float:
    """Variance of u_i in logits^2 by moments: E[(sum of y - h)^2] = I + var I^2, I = sum h(1-h)."""
    score = np.bincount(drafts.request, weights=drafts.accepted - predicted)
    information = np.bincount(drafts.request, weights=predicted * (1.0 - predicted))
    moment = float((score**2 - information).sum() / max(float((information**2).sum()), 1e-9))
    low, high = _VARIANCE_RANGE
    return round(min(max(moment, low), high), 4)


def _at_most(drafts: Drafts, random: np.random.Generator) -> Drafts:
    """A sample of whole requests where there is more than is needed."""
    count = len(drafts.position)
    if count <= _MOST_DRAFTS:
        return drafts
    order = random.permutation(int(drafts.request.max()) + 1)
    sizes = np.bincount(drafts.request)[order]
    kept = order[np.cumsum(sizes) <= _MOST_DRAFTS]
    return drafts.only(np.flatnonzero(np.isin(drafts.request, kept)))


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
        raise missing_extra(
            "fitting needs scikit-learn, the fitted model does not", "fit"
        ) from error


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def fit_step_times(
    outcomes: list[StepOutcome], *, source: str
) -> tuple[CostProfile | None, float | None]:
    """The profile, and the median relative error of predictions made before each step was seen.

    The error is over the second half of the steps. None, None with fewer than 60 steps.
    """
    usable = [each for each in outcomes if each.seconds > 0.0 and each.batch_size]
    if len(usable) < _FEWEST_TIMED_STEPS:
        return None, None
    deepest = max(
        max(each.draft_depth, -(-each.batch_tokens // each.batch_size) - 1) for each in usable
    )
    times = StepTimes(Capability(level=Level.FULL, max_draft_tokens=max(deepest, 1)))
    errors = []
    for number, outcome in enumerate(usable):
        if 2 * number >= len(usable):
            passes = float(times.passes[outcome.draft_depth])
            sizes = outcome.batch_size, outcome.batch_tokens, outcome.context_tokens
            predicted = times.seconds(*sizes, passes) + times.prompt_seconds(outcome.prefill_tokens)
            errors.append(abs(predicted / outcome.seconds - 1.0))
        times.learn(outcome, cold=False)
    profile = profile_of(times)
    profile = msgspec.structs.replace(
        profile, name="fitted", source=f"{len(usable)} recorded steps of {source}"
    )
    return profile, round(float(np.median(errors)), 5)
