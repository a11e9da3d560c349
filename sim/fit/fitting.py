"""Fit of the `regression` policy's model file, measured on held-out requests.

scikit-learn is imported only when something is fitted: what runs in a server reads the exported
numbers (`adaptive_spec.policies.regression`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.errors import DataError, missing_extra
from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policies.optional.profile_prior import profile_of
from adaptive_spec.policies.regression import Head, RegressionModel
from adaptive_spec.policies.step_times import StepTimes
from adaptive_spec.sim.fit.calibration import Calibration, calibration_by_position
from adaptive_spec.sim.fit.sources import Steps, joined, read_source
from adaptive_spec.sim.fit.table import Drafts, average_hazards, observed_drafts, seen_by_position
from adaptive_spec.step import Capability, FloatArray, Level, StepOutcome

_FEWEST_REQUESTS = 10
_FEWEST_DRAFTS = 500
_FEWEST_AT_POSITION = 100
_MOST_DRAFTS = 400_000
_FEWEST_TIMED_STEPS = 60
_REGULARISATION = 10.0


def fit_sources(
    sources: Sequence[Path],
    *,
    held_out: float = 0.3,
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
    model = fit_steps(joined(parts), held_out=held_out, seed=seed, source=names)
    profile, error = fit_step_times(times, source=names)
    return msgspec.structs.replace(model, name=name, step_times=profile, step_time_error=error)


def fit_steps(steps: Steps, *, held_out: float, seed: int = 0, source: str = "") -> RegressionModel:
    """Fit hazards; calibration is measured on requests that the measured fit has not seen.

    Args:
        steps: all of them.
        held_out: fraction of the requests, in (0, 1), left out of the fit.
        seed: of the split.
        source: for the file.

    Raises DataError if there is too little to fit to.
    """
    random = np.random.default_rng(seed)
    shuffled = random.permutation(steps.requests).astype(np.int64)
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
    drafts = _at_most(observed_drafts(train, average), random)
    if not 0.0 < drafts.accepted.mean() < 1.0:
        raise DataError(f"{source}: every draft had the same outcome; there is nothing to fit")
    history = fit_head(drafts, positions)
    live: Head | None = None
    shown = np.flatnonzero(np.isfinite(drafts.confidence))
    if len(shown) >= _FEWEST_DRAFTS:
        live = fit_head(drafts.only(shown), positions, confidence=True)
    measured = observed_drafts(test, average)
    calibration = _calibration(history, live, measured, average, train.requests, test.requests)
    return RegressionModel(
        source=f"{len(steps.verified)} steps of {steps.requests} requests: {source}",
        average=average,
        history=history,
        drafts=live,
        calibration=msgspec.to_builtins(calibration),
    )


def predict(head: Head, drafts: Drafts) -> FloatArray:
    """[N] probability that each draft is accepted, by the code that runs online."""
    y = drafts.confidence if head.confidence else 0.0
    result: FloatArray = 1.0 / (1.0 + np.exp(-head.logits(drafts.position, drafts.history, y)))
    return result


def _calibration(
    history: Head,
    live: Head | None,
    measured: Drafts,
    average: list[float],
    requests: int,
    held_out: int,
) -> Calibration:
    flat = np.array(average)[np.minimum(measured.position, len(average) - 1)]

    def by(predicted: FloatArray, drafts: Drafts) -> Any:
        return calibration_by_position(predicted, drafts.accepted, drafts.position)

    result = Calibration(
        requests=requests,
        held_out=held_out,
        average=by(flat, measured),
        history=by(predict(history, measured), measured),
    )
    shown = np.flatnonzero(np.isfinite(measured.confidence))
    if live is None or not len(shown):
        return result
    there = measured.only(shown)
    return msgspec.structs.replace(
        result,
        drafts=by(predict(live, there), there),
        history_there=by(predict(history, there), there),
    )


def _at_most(drafts: Drafts, random: np.random.Generator) -> Drafts:
    """A sample of whole requests where there is more than is needed."""
    count = len(drafts.position)
    if count <= _MOST_DRAFTS:
        return drafts
    order = random.permutation(int(drafts.request.max()) + 1)
    sizes = np.bincount(drafts.request, minlength=len(order))[order]
    kept = order[np.cumsum(sizes) <= _MOST_DRAFTS]
    return drafts.only(np.flatnonzero(np.isin(drafts.request, kept)))


def fit_head(drafts: Drafts, positions: int, *, confidence: bool = False) -> Head:
    """Fit P(accepted | position, history, and confidence if asked for).

    Positions from `positions` on count as the last. Raises ConfigError without scikit-learn.
    """
    linear = _scikit("linear_model")
    position = np.minimum(drafts.position, positions - 1)
    columns = [drafts.history, drafts.confidence] if confidence else [drafts.history]
    design = np.column_stack([position[:, None] == np.arange(positions), *columns])
    model = linear.LogisticRegression(C=_REGULARISATION, fit_intercept=False, max_iter=1000)
    model.fit(design, drafts.accepted > 0.5)
    found = [float(f"{value:.6g}") for value in model.coef_[0]]
    return Head(
        intercepts=found[:positions],
        history=found[positions],
        confidence=found[positions + 1] if confidence else 0.0,
    )


def _scikit(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise missing_extra(
            "fitting needs scikit-learn, the fitted model does not", "fit"
        ) from error


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
