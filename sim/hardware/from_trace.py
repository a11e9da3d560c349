"""A hardware profile from a recorded step trace.

    T = curve(M) + per_request B + per_context_token C + per_prefill_token P
        + [any draft] (any_draft + any_draft_per_request B)
        + passes (pass + pass_per_request B + pass_per_context_token C)

with the columns of `adaptive_spec.operation.trace`; M and the curve as in `HardwareProfile`. All
parts are >= 0 and the curve never falls. The fit weighs relative errors, by Huber's rule, so a slow
step counts little; where nothing was measured the curve is drawn straight. Whether prompt tokens
share the curve, and whether a step of depth 0 still drafts one pass, is what fits better.

A trace in which two things always move together cannot tell them apart; it is refused with what
is missing, since a profile that guesses would be believed.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.hardware.catalogue import model_facts
from adaptive_spec.sim.hardware.nonnegative import robust_nonnegative_fit
from adaptive_spec.sim.hardware.profile_file import (
    ANY_DRAFTER,
    NOMINAL_MODEL,
    HardwareProfile,
    MeasuredDraft,
)
from adaptive_spec.sim.step_trace import RecordedStep, read_steps, segment_folders
from adaptive_spec.step import FloatArray, Mode

_KNOTS = (
    *(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536),
    *(2048, 3072, 4096, 6144, 8192, 12288, 16384),
)
FEWEST_STEPS = 60
LARGEST_FIT_ERROR = 0.15
"""Median relative error of step times beyond which predictions are worthless."""
_FEWEST_ALIKE = 5
"""Steps of a kind below which the trace counts as not having them."""
_MOST_STEPS = 1 << 16
"""Steps that are kept, spread evenly over the trace."""
_COLUMNS = 7
_SMOOTHNESS = 1e-3
_USABLE = 0.9  # the share of memory that `adaptive_spec.sim.engine.kv_pool` uses
_NO_LIMIT = 1 << 39
"""`kv_free_tokens` at least this large mean that the engine did not say."""


class TraceFit(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of a profile with the trace it was made from.

    Attributes:
        steps: used, of a long trace some.
        skipped: left out, because they were not measured cleanly.
        median_error, p90_error: relative, absolute value.
        total: predicted over measured time of all steps.
        off_pass: a step of depth 0 drafts one pass; None if there was none.
    """

    steps: int
    skipped: int
    median_error: float
    p90_error: float
    total: float
    off_pass: bool | None

    @property
    def usable(self) -> bool:
        """Whether predictions are worth anything."""
        return self.median_error <= LARGEST_FIT_ERROR


@dataclass(frozen=True)
class TimedSteps:
    """Columns of the usable steps, [steps] each.

    Attributes:
        seconds: measured duration.
        requests, tokens, context, prefill: B, N, C and P of the step.
        depth: D.
        cold: 1 while OFF-cold.
        skipped: steps left out, because they were not measured cleanly.
        pool_tokens: size of the KV pool; None if the engine did not say.
    """

    seconds: FloatArray
    requests: FloatArray
    tokens: FloatArray
    context: FloatArray
    prefill: FloatArray
    depth: FloatArray
    cold: FloatArray
    skipped: int
    pool_tokens: int | None

    @property
    def shows_drafting(self) -> bool:
        """Whether steps drafted to different depths, so that the time of drafting can be told."""
        return len(_values(self.depth)) > 1


def profile_from_trace(
    directories: Iterable[Path], *, name: str, drafter: str = ANY_DRAFTER
) -> tuple[HardwareProfile, TraceFit]:
    """Fit a profile to all steps in these directories.

    Args:
        directories: each with segments as `adaptive_spec.operation.trace` writes them.
        name: of the profile.
        drafter: which drafter ran; by default its cost is used for any.

    Raises:
        DataError: no steps, or steps that cannot tell apart what the profile needs.
        ConfigError: a line that is no step record.
    """
    places = list(directories)
    steps = read_timed_steps(places)
    source = f"fitted to {len(steps.seconds)} steps of {', '.join(place.name for place in places)}"
    return fit_profile(steps, name=name, source=source, drafter=drafter)


def fit_profile(
    steps: TimedSteps, *, name: str, source: str, drafter: str = ANY_DRAFTER
) -> tuple[HardwareProfile, TraceFit]:
    """Fit a profile to steps that `read_timed_steps` has read.

    Where the time of drafting cannot be told, it is part of every step, also of one without drafts.
    """
    if steps.shows_drafting:
        pass_at_zero = (True, False) if (steps.depth == 0).any() else (True,)
    else:
        steps, pass_at_zero = replace(steps, depth=np.zeros_like(steps.depth)), (False,)
    fits = [
        _Fit(steps, prefill_in_curve=in_curve, off_pass=off_pass)
        for in_curve in (True, False)
        for off_pass in pass_at_zero
    ]
    # The first of equals: a drafter that keeps its state in step is the common case.
    best = min(fits, key=lambda fit: round(fit.loss, 5))
    return best.profile(name, source, drafter), best.quality()


class _Fit:
    """One fit, with two structural choices made."""

    def __init__(self, steps: TimedSteps, *, prefill_in_curve: bool, off_pass: bool) -> None:
        self._steps = steps
        self._in_curve = prefill_in_curve
        self._off_pass = off_pass
        curve_tokens = steps.tokens + steps.prefill if prefill_in_curve else steps.tokens
        self._knots = _knots(curve_tokens)
        passes = np.where((steps.depth == 0) & (steps.cold == 0), float(off_pass), steps.depth)
        drafted = (steps.tokens > steps.requests).astype(np.float64)
        columns = [
            *_ramps(curve_tokens, self._knots),
            steps.requests,
            steps.context,
            steps.prefill,
            drafted,
            drafted * steps.requests,
            passes,
            passes * steps.requests,
            passes * steps.context,
        ]
        features = np.stack(columns, axis=1)
        penalty = _straightness(self._knots, features.shape[1], len(steps.seconds))
        self._coefficients = robust_nonnegative_fit(features, steps.seconds, penalty)
        self._predicted: FloatArray = features @ self._coefficients
        errors = np.abs(self._predicted / steps.seconds - 1.0)
        self._errors: FloatArray = errors
        prompts = steps.prefill > 0
        self.loss = _undisturbed_mean(errors[prompts]) + _undisturbed_mean(errors[~prompts])

    def profile(self, name: str, source: str, drafter: str) -> HardwareProfile:
        """The coefficients as a profile."""
        model = model_facts(NOMINAL_MODEL)
        curve = len(self._knots)
        per_request, context, prefill, any_draft, any_request, *passes = self._coefficients[
            curve:
        ].tolist()
        weights = 2.0 * model.weights
        pool = self._steps.pool_tokens or _NO_LIMIT
        return HardwareProfile(
            schema=1,
            name=name,
            source=f"{source}; weights and layers nominal, as {model.name}",
            memory_bytes=(weights + (pool + 1) * model.kv_bytes_per_token()) / _USABLE,
            weight_bytes=weights,
            kv_bytes_per_token=model.kv_bytes_per_token(),
            layers=model.layers,
            tokens=[int(knot) for knot in self._knots],
            seconds=np.maximum(np.cumsum(self._coefficients[:curve]), 1e-9).tolist(),
            prefill_in_curve=self._in_curve,
            per_request=per_request,
            per_context_token=context,
            per_prefill_token=prefill,
            any_draft=any_draft,
            any_draft_per_request=any_request,
            drafts={
                drafter: MeasuredDraft(
                    pass_=passes[0],
                    pass_per_request=passes[1],
                    pass_per_context_token=passes[2],
                    source=source,
                )
            },
        )

    def quality(self) -> TraceFit:
        """Return how well the profile fits."""
        steps = self._steps
        warm = (steps.depth == 0) & (steps.cold == 0)
        return TraceFit(
            steps=len(steps.seconds),
            skipped=steps.skipped,
            median_error=float(np.median(self._errors)),
            p90_error=float(np.percentile(self._errors, 90)),
            total=float(self._predicted.sum() / steps.seconds.sum()),
            off_pass=self._off_pass if warm.any() else None,
        )


def _undisturbed_mean(errors: FloatArray) -> float:
    """Mean of the lower nine tenths: outliers say nothing of the model."""
    return float(np.sort(errors)[: max(1, int(0.9 * len(errors)))].mean()) if len(errors) else 0.0


def _knots(tokens: FloatArray) -> FloatArray:
    """Return the knots of the ladder inside the measured range, and its two ends."""
    low, high = float(tokens.min()), float(tokens.max())
    inner = [knot for knot in _KNOTS if low < knot < high]
    return np.array([low, *inner, max(high, low + 1.0)])


def _ramps(tokens: FloatArray, knots: FloatArray) -> list[FloatArray]:
    """1, then for each piece of the curve how much of it lies below `tokens`."""
    pieces: list[FloatArray] = [np.ones(len(tokens))]
    for left, right in itertools.pairwise(knots):
        pieces.append(np.clip((tokens - left) / (right - left), 0.0, 1.0))
    return pieces


def _straightness(knots: FloatArray, columns: int, steps: int) -> FloatArray:
    """Penalty on bends: the slopes of neighbouring pieces should be alike.

    In seconds, hence weak against the relative errors of measured steps; it decides only where
    there are none.
    """
    penalty = np.zeros((columns, columns))
    widths = np.diff(knots)
    for k in range(len(widths) - 1):
        row = np.zeros(columns)
        width = float(np.sqrt(widths[k] * widths[k + 1]))
        row[1 + k], row[2 + k] = width / widths[k], -width / widths[k + 1]
        penalty += _SMOOTHNESS * steps * np.outer(row, row)
    return penalty


def read_timed_steps(places: Sequence[Path], *, one_depth: bool = False) -> TimedSteps:
    """Read the measured steps of these folders and segments. Raises as `profile_from_trace`.

    With `one_depth`, steps that all drafted equally deep are read, too.
    """
    rows, skipped, stride, measured = array("d"), 0, 1, 0
    pool: int | None = None
    named = ", ".join(map(str, places))
    for place in places:
        if not place.exists():
            raise DataError(f"{place}: no such directory or file")
        folders = segment_folders(place) if place.is_dir() else [place]
        for step in itertools.chain.from_iterable(map(read_steps, folders)):
            if step.kv_free_tokens < _NO_LIMIT:
                pool = max(pool or 0, step.kv_free_tokens + step.context_tokens)
            if step.seconds is None or step.seconds <= 0 or step.batch_tokens < 1:
                skipped += 1
                continue
            if measured % stride == 0:
                rows.extend(_row(step))
            measured += 1
            if len(rows) >= _MOST_STEPS * _COLUMNS:
                stride *= 2
                rows = array("d", np.array(rows).reshape(-1, _COLUMNS)[::2].tobytes())
    if measured < FEWEST_STEPS:
        raise DataError(
            f"{named}: {measured} measured steps, {FEWEST_STEPS} are needed; "
            "is this the `trace.directory` of a server?"
        )
    seconds, requests, tokens, context, prefill, depth, cold = (
        np.array(rows).reshape(-1, _COLUMNS).T
    )
    steps = TimedSteps(
        seconds=seconds,
        requests=requests,
        tokens=tokens,
        context=context,
        prefill=prefill,
        depth=depth,
        cold=cold,
        skipped=skipped,
        pool_tokens=pool,
    )
    _check_identifiable(steps, named)
    if not (one_depth or steps.shows_drafting):
        raise DataError(f"{named}: {drafted_alike(steps)}: record with several K")
    return steps


def drafted_alike(steps: TimedSteps) -> str:
    """Say that the time of drafting cannot be told."""
    return (
        f"every step drafted {_values(steps.depth)[0]:g} deep, so drafting cannot be told from the "
        "rest of a step"
    )


def _row(step: RecordedStep) -> tuple[float, ...]:
    assert step.seconds is not None
    load = step.batch_size, step.batch_tokens, step.context_tokens, step.prefill_tokens
    return step.seconds, *load, step.depth, float(step.mode is Mode.OFF_COLD)


def _check_identifiable(steps: TimedSteps, place: str) -> None:
    """Raises DataError naming the first thing that never varies."""
    batch_sizes = _values(steps.requests)
    if len(batch_sizes) < 2:
        raise DataError(
            f"{place}: every step decoded {batch_sizes[0]:g} requests, so the cost of a request "
            "cannot be told: record at several concurrencies"
        )
    per_request = _values(np.round(steps.tokens / steps.requests - 1.0, 1))
    if len(per_request) < 2:
        raise DataError(
            f"{place}: every step verified K = {per_request[0]:g}, so verification cannot be told "
            "from the rest of a step: record with several K"
        )
    if (steps.prefill > 0).sum() < _FEWEST_ALIKE:
        raise DataError(
            f"{place}: fewer than {_FEWEST_ALIKE} steps held prompt tokens, so their cost cannot "
            "be told: record requests from their start"
        )


def _values(column: FloatArray) -> list[float]:
    """Values that occur often enough to count; the commonest one at least."""
    values, counts = np.unique(column, return_counts=True)
    often = values[counts >= min(_FEWEST_ALIKE, int(counts.max()))]
    return [float(value) for value in often]
