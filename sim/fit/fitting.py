"""Fit of the `regression` policy's model file, measured on held-out requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.policies.regression.features import DRAFT_FEATURES, REQUEST_FEATURES
from adaptive_spec.policies.regression.heads import HeadEvaluator
from adaptive_spec.policies.regression.model_file import (
    LogisticHead,
    RegressionModel,
)
from adaptive_spec.sim.fit.calibration import Calibration, calibration_by_position
from adaptive_spec.sim.fit.estimators import fit_head
from adaptive_spec.sim.fit.sources import read_source
from adaptive_spec.sim.fit.step_times import fit_step_times
from adaptive_spec.sim.fit.steps import Steps, joined
from adaptive_spec.sim.fit.table import (
    Drafts,
    average_hazards,
    observed_drafts,
    seen_by_position,
)
from adaptive_spec.step import FloatArray, IntArray, StepOutcome

_FEWEST_REQUESTS = 10
_FEWEST_DRAFTS = 500
_FEWEST_AT_POSITION = 100
_MOST_DRAFTS = 400_000
_TASK_STRENGTH = 20.0
_VARIANCE_RANGE = (0.02, 1.0)


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
