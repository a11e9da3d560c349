"""Fit of the `regression` policy's model file to recorded steps (`adaptive-spec fit`).

Steps S of requests R lie end to end, as in `RecordedSteps`; x [S] and y [P, S] are the policy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.errors import DataError, missing_extra
from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policies.hazard_quality import BINS, auc, calibration_error, tally
from adaptive_spec.policies.optional.profile_prior import profile_of
from adaptive_spec.policies.regression import Head, History, RegressionModel, logit_of
from adaptive_spec.policies.step_times import StepTimes
from adaptive_spec.sim.acceptance.imputation import RecordedSteps
from adaptive_spec.sim.acceptance.recorded import is_npz, load_recorded_npz
from adaptive_spec.sim.acceptance.request_rows import RequestRows
from adaptive_spec.sim.step_trace import find_trace
from adaptive_spec.step import BoolArray, Capability, FloatArray, Level, Mode, StepOutcome

_FEWEST_REQUESTS, _FEWEST_DRAFTS, _FEWEST_AT_POSITION, _FEWEST_TIMED_STEPS = 10, 500, 100, 60
_MOST_ROWS = 1 << 17
"""Steps of requests that are read of a trace."""
_REGULARISATION = 10.0


def fit_model(
    places: Sequence[Path], *, held_out: float = 0.3, seed: int = 0, name: str = ""
) -> RegressionModel:
    """Fit hazards and step times; calibration is measured on requests left out of the fit.

    Args:
        places: step traces, or npz files of steps, which have no step times.
        held_out: fraction of the requests, in (0, 1), left out.
        seed: of the split.
        name: of the model, for people.

    Raises DataError naming the place and what is wrong, ConfigError without scikit-learn.
    """
    read = [read_steps(place) for place in places]
    source = ", ".join(place.name for place in places[:3])
    source += f" and {len(places) - 3} more" if len(places) > 3 else ""
    steps = joined([steps for steps, _ in read])
    model = fit_hazards(steps, held_out=held_out, seed=seed, source=source)
    profile, error = fit_step_times([each for _, times in read for each in times], source)
    return msgspec.structs.replace(model, name=name, step_times=profile, step_time_error=error)


def read_steps(place: Path) -> tuple[RecordedSteps, list[StepOutcome]]:
    """Return steps of requests for the hazards, and outcomes for the step times."""
    if place.is_file() and is_npz(place):
        return load_recorded_npz(place)[0], []
    trace, rows, times = find_trace(place), RequestRows(most_rows=_MOST_ROWS), []
    for step in trace.steps():
        rows.add(step)
        if step.seconds and step.batch_size and step.mode is not Mode.OFF_COLD:
            times.append(step.outcome(step.step, np.arange(len(step.ids))))
    steps = rows.steps(trace.name)
    if not steps.verified.any():
        raise DataError(f"{place}: no step verified a draft; record one with speculation on")
    return steps, times


def joined(parts: Sequence[RecordedSteps]) -> RecordedSteps:
    """Return the steps of all parts, requests numbered on, confidence nan where unknown."""
    deepest = max(int(part.verified.max()) for part in parts)
    shown = [np.full((len(part.verified), deepest), np.nan, np.float32) for part in parts]
    for columns, part in zip(shown, parts, strict=True):
        if part.confidence is not None:
            own = part.confidence[:, :deepest]
            columns[:, : own.shape[1]] = own
    return RecordedSteps(
        verified=np.concatenate([part.verified for part in parts]),
        accepted=np.concatenate([part.accepted for part in parts]),
        emitted=np.concatenate([part.emitted for part in parts]),
        offsets=np.cumsum([0, *(n for part in parts for n in np.diff(part.offsets).tolist())]),
        confidence=np.concatenate(shown),
    )


def fit_hazards(
    steps: RecordedSteps, *, held_out: float, seed: int = 0, source: str = ""
) -> RegressionModel:
    """Fit hazards to the steps of some requests, and measure them on those of the others."""
    lengths = np.diff(steps.offsets)
    aside = round(held_out * len(lengths))
    if len(lengths) < _FEWEST_REQUESTS or not 0 < aside < len(lengths):
        what = f"{len(lengths)} requests with {aside} held out"
        raise DataError(f"{source}: {what}; {_FEWEST_REQUESTS} are needed, some on either side")
    left_out = np.zeros(len(lengths), dtype=np.bool_)
    left_out[np.random.default_rng(seed).permutation(len(lengths))[:aside]] = True
    test = np.repeat(left_out, lengths)
    at = np.arange(int(steps.verified.max()))[:, None]
    seen = at < np.minimum(steps.accepted + 1, steps.verified)
    hits = at < steps.accepted
    counts = np.count_nonzero(seen & ~test, axis=1)
    if counts.sum() < _FEWEST_DRAFTS:
        what = f"{int(counts.sum())} drafts were observed in the requests to fit to"
        raise DataError(f"{source}: {what}, {_FEWEST_DRAFTS} are needed: record longer")
    if len(set(hits[seen & ~test].tolist())) < 2:
        raise DataError(f"{source}: every draft had the same outcome; there is nothing to fit")
    positions = max(int(np.count_nonzero(counts >= _FEWEST_AT_POSITION)), 1)
    average = average_hazards(hits[:, ~test], seen[:, ~test], positions)
    assert steps.confidence is not None
    x, y = histories(steps, average), logit_of(steps.confidence.T.astype(np.float64))
    shown = seen & ~np.isnan(y)
    head, live = fit_head(hits, seen & ~test, x, positions), None
    if np.count_nonzero(shown & ~test) >= _FEWEST_DRAFTS:
        live = fit_head(hits, shown & ~test, x, positions, y)

    def quality(head: Head, chosen: BoolArray) -> dict[str, float | None]:
        """Calibration error and AUC of the chosen drafts [P, S], by the code that runs online."""
        hazard = 1.0 / (1.0 + np.exp(-head.logits(at, x, y if head.confidence else 0.0)))
        counts = np.zeros((len(at), BINS, 3))
        tally(np.where(chosen, hazard, np.nan), steps.verified, steps.accepted, counts)
        found = {"ece": calibration_error(counts.sum(axis=0)), "auc": auc(counts.sum(axis=0))}
        return {key: value and round(value, 4) for key, value in found.items()}

    chosen = seen & test if live is None else shown & test
    calibration: dict[str, Any] = {"requests": len(lengths) - aside, "held_out": aside}
    calibration |= {"drafts": int(chosen.sum()), "without_confidence": quality(head, chosen)}
    if live is not None:
        calibration["with_confidence"] = quality(live, chosen)
    return RegressionModel(
        source=f"{len(steps.verified)} steps of {len(lengths)} requests: {source}",
        average=average,
        history=head,
        drafts=live,
        calibration=calibration,
    )


def average_hazards(hits: BoolArray, seen: BoolArray, positions: int) -> list[float]:
    """[positions] hazard of each position, by the product-limit form, kept off 0 and 1.

    A position that was never reached has the hazard of the one before.
    """
    hazards, before = [], 0.5
    for kept, reached in zip(hits.sum(axis=1)[:positions], seen.sum(axis=1), strict=False):
        before = min(max((int(kept) + 2.0 * before) / (int(reached) + 2.0), 0.02), 0.98)
        hazards.append(round(before, 5))
    return hazards


def histories(steps: RecordedSteps, average: list[float]) -> FloatArray:
    """[S] x of the requests as known before each step: the first step of all, then the second."""
    lengths, past, x = np.diff(steps.offsets), History(average), np.zeros(len(steps.verified))
    for number in range(int(lengths.max())):
        request = np.flatnonzero(lengths > number)
        rows = steps.offsets[request] + number
        x[rows] = past.x(request)
        past.learn(request, steps.verified[rows], steps.accepted[rows])
    return x


def fit_head(
    hits: BoolArray, seen: BoolArray, x: FloatArray, positions: int, y: FloatArray | None = None
) -> Head:
    """Fit P(hit | position, x, and y if given) to the drafts [P, S] that were seen.

    Positions from `positions` on count as the last. Raises ConfigError without scikit-learn.
    """
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        need = "fitting needs scikit-learn, the fitted model does not"
        raise missing_extra(need, "fit") from error
    at, step = np.nonzero(seen)
    design = [np.minimum(at, positions - 1)[:, None] == np.arange(positions), x[step]]
    if y is not None:
        design.append(y[at, step])
    model = LogisticRegression(C=_REGULARISATION, fit_intercept=False, max_iter=1000)
    model.fit(np.column_stack(design), hits[at, step])
    *intercepts, history = [float(f"{value:.6g}") for value in model.coef_[0][: positions + 1]]
    confidence = 0.0 if y is None else float(f"{model.coef_[0][-1]:.6g}")
    return Head(intercepts=intercepts, history=history, confidence=confidence)


def fit_step_times(
    outcomes: Sequence[StepOutcome], source: str
) -> tuple[CostProfile | None, float | None]:
    """Return the profile, and the median relative error of predictions before each step was seen.

    The error is over the second half of the steps. None, None with fewer than 60 steps.
    """
    if len(outcomes) < _FEWEST_TIMED_STEPS:
        return None, None
    deepest = max(max(each.draft_depth, *each.verified, 1) for each in outcomes)
    times, errors = StepTimes(Capability(level=Level.FULL, max_draft_tokens=int(deepest))), []
    for number, outcome in enumerate(outcomes):
        if 2 * number >= len(outcomes):
            passes = float(times.passes[outcome.draft_depth])
            sizes = outcome.batch_size, outcome.batch_tokens, outcome.context_tokens
            predicted = times.seconds(*sizes, passes) + times.prompt_seconds(outcome.prefill_tokens)
            errors.append(abs(predicted / outcome.seconds - 1.0))
        times.learn(outcome, cold=False)
    about = f"{len(outcomes)} recorded steps of {source}"
    profile = msgspec.structs.replace(profile_of(times), name="fitted", source=about)
    return profile, round(float(np.median(errors)), 5)
