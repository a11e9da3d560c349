"""A hardware profile from a recorded step trace.

    T = curve(M) + per_request B + per_context_token C + per_prefill_token P
        + [any draft] (any_draft + any_draft_per_request B)
        + passes (pass + pass_per_request B + pass_per_context_token C)

with the columns of `adaptive_spec.operation.trace`; M and the curve as in `HardwareProfile`. All
parts are >= 0 and the curve never falls. The fit weighs relative errors, by Huber's rule, so a slow
step counts little; where nothing was measured the curve is drawn straight. Whether prompt tokens
share the curve, and whether a step of depth 0 still drafts one pass, is what fits better. Batches
of prompts alone, as SGLang runs them, are steps with B = N = C = 0 whose prompts share the curve.
Without prompts, as in a decode pool, they cost nothing.

A trace in which two things always move together cannot tell them apart; it is refused with what
is missing, since a profile that guesses would be believed.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
from adaptive_spec.sim.step_trace import RecordedStep, RecordedTrace, Source, find_trace
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
STEP_ARRAYS = "seconds", "requests", "tokens", "context", "prefill", "depth", "cold", "source"
_COLUMNS = len(STEP_ARRAYS)
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
        note: what the trace lets nobody tell, in words; "": nothing.
    """

    steps: int
    skipped: int
    median_error: float
    p90_error: float
    total: float
    off_pass: bool | None
    note: str = ""

    @property
    def usable(self) -> bool:
        """Return whether predictions are worth anything."""
        return self.median_error <= LARGEST_FIT_ERROR


@dataclass(frozen=True)
class TimedSteps:
    """Columns of the usable steps, [steps] each.

    Attributes:
        seconds: measured duration.
        requests, tokens, context, prefill: B, N, C and P of the step.
        depth: D.
        cold: 1 while OFF-cold.
        source: number of the process, an index into `sources`.
        sources: names of the recording processes.
        skipped: steps left out, because they were not measured cleanly.
        pool_tokens: size of the KV pool; None if the engine did not say.
        stride: of so many steps, one is kept.
    """

    seconds: FloatArray
    requests: FloatArray
    tokens: FloatArray
    context: FloatArray
    prefill: FloatArray
    depth: FloatArray
    cold: FloatArray
    source: FloatArray
    sources: tuple[str, ...]
    skipped: int
    pool_tokens: int | None
    stride: int = 1

    @property
    def shows_prompts(self) -> bool:
        """Return whether prompts ran often enough to tell their time."""
        return int((self.prefill > 0).sum()) >= _FEWEST_ALIKE

    @property
    def note(self) -> str:
        """Limits of what is known of prompts, in words."""
        if not self.shows_prompts:
            return (
                "the trace holds none, or hardly any, as that of a decode pool: times and gains "
                "are of decoding alone"
            )
        if (self.requests == 0).any():
            return "they ran in batches of their own; predicted as parts of the steps"
        return ""

    @property
    def shows_drafting(self) -> bool:
        """Return whether steps drafted to different depths, which tell the time of drafting."""
        return len(_values(self.depth[self.requests > 0])) > 1


def profile_from_trace(
    source: Source, *, name: str, drafter: str = ANY_DRAFTER
) -> tuple[HardwareProfile, TraceFit]:
    """Fit a profile to all steps of a trace.

    Args:
        source: of the steps.
        name: of the profile.
        drafter: which drafter ran; by default its cost is used for any.

    Raises:
        DataError: no steps, or steps that cannot tell apart what the profile needs.
        ConfigError: a line that is no step record.
    """
    trace = one_server(source)
    steps = read_timed_steps(trace)
    said = f"fitted to {len(steps.seconds)} steps of {trace.name}"
    return fit_profile(steps, name=name, source=said, drafter=drafter)


def servers(source: Source) -> list[RecordedTrace]:
    """Return the traces of the servers that recorded, apart where their speeds differ.

    Processes with too few steps to tell are left out then.
    """
    trace = find_trace(source)
    return [trace.only(names) for _, names in _by_speed(trace)] or [trace]


def one_server(source: Source) -> RecordedTrace:
    """Return the trace. Raises DataError for servers of different speed, which it names."""
    trace = find_trace(source)
    groups = _by_speed(trace)
    if groups:
        named = "; ".join(f"{', '.join(names)}: x {time:.2f}" for time, names in groups)
        raise DataError(
            f"{trace.name}: servers of different speed; take the segments of one. Step times of "
            f"{named}"
        )
    return trace


def _by_speed(trace: RecordedTrace) -> list[tuple[float, list[str]]]:
    """Return the recording processes as `by_speed` does."""
    if len(trace.processes) < 2:
        return []
    try:
        return by_speed(read_timed_steps(trace, one_depth=True))
    except DataError:
        return []


def by_speed(steps: TimedSteps) -> list[tuple[float, list[str]]]:
    """Return the sources by how long their steps take, those of alike speed together.

    Returns:
        For each group the time of its steps, relative to that of the fastest, and its sources;
        empty where all are alike, or too few steps tell.
    """
    ratios = steps.seconds / _best_fit(steps).predicted
    paces = []
    for number, name in enumerate(steps.sources):
        own = ratios[steps.source == number]
        if len(own) >= FEWEST_STEPS:
            paces.append((float(np.median(own)), name))
    groups: list[tuple[float, list[str]]] = []
    for pace, name in sorted(paces):
        if not groups or pace > groups[-1][0] * (1.0 + LARGEST_FIT_ERROR):
            groups.append((pace, []))
        groups[-1][1].append(name)
    return [(pace / groups[0][0], names) for pace, names in groups] if len(groups) > 1 else []


def fit_profile(
    steps: TimedSteps, *, name: str, source: str, drafter: str = ANY_DRAFTER
) -> tuple[HardwareProfile, TraceFit]:
    """Fit a profile to steps that `read_timed_steps` has read.

    Where the time of drafting cannot be told, it is part of every step, also of one without drafts.
    """
    best = _best_fit(steps)
    return best.profile(name, source, drafter), best.quality()


def _best_fit(steps: TimedSteps) -> _Fit:
    if steps.shows_drafting:
        pass_at_zero = (True, False) if (steps.depth == 0).any() else (True,)
    else:
        steps, pass_at_zero = replace(steps, depth=np.zeros_like(steps.depth)), (False,)
    in_curve: tuple[bool, ...] = (True, False)
    if not steps.prefill.any():
        in_curve = (False,)
    elif (steps.requests == 0).any():
        in_curve = (True,)
    fits = [
        _Fit(steps, prefill_in_curve=shared, off_pass=off_pass)
        for shared in in_curve
        for off_pass in pass_at_zero
    ]
    # The first of equals: a drafter that keeps its state in step is the common case.
    return min(fits, key=lambda fit: round(fit.loss, 5))


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
        self.predicted: FloatArray = features @ self._coefficients
        errors = np.abs(self.predicted / steps.seconds - 1.0)
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
            total=float(self.predicted.sum() / steps.seconds.sum()),
            off_pass=self._off_pass if warm.any() else None,
            note=steps.note,
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


class TimedRows:
    """Gathers the measured steps of a trace.

    Args:
        most_steps: that are kept, spread evenly over the trace; None: as many as a fit can use.
    """

    def __init__(self, most_steps: int | None = None) -> None:
        self._most = most_steps or _MOST_STEPS
        self._rows = array("d")
        self._stride, self._measured, self._skipped = 1, 0, 0
        self._sources: dict[str, int] = {}
        self._pool: int | None = None

    def add(self, step: RecordedStep) -> None:
        """Add a step."""
        number = self._sources.setdefault(step.source, len(self._sources))
        if step.kv_free_tokens < _NO_LIMIT:
            self._pool = max(self._pool or 0, step.kv_free_tokens + step.context_tokens)
        self._skipped += step.seconds is None or step.seconds <= 0 or step.batch_tokens < 1
        for row in _rows(step):
            if self._measured % self._stride == 0:
                self._rows.extend((*row, number))
            self._measured += 1
        if len(self._rows) >= self._most * _COLUMNS:
            self._stride *= 2
            kept = np.array(self._rows).reshape(-1, _COLUMNS)[::2]
            self._rows = array("d", kept.tobytes())

    def steps(self) -> TimedSteps:
        """Return what was kept."""
        columns = np.array(self._rows).reshape(-1, _COLUMNS).T
        seconds, requests, tokens, context, prefill, depth, cold, source = columns
        return TimedSteps(
            seconds=seconds,
            requests=requests,
            tokens=tokens,
            context=context,
            prefill=prefill,
            depth=depth,
            cold=cold,
            source=source,
            sources=tuple(self._sources),
            skipped=self._skipped,
            pool_tokens=self._pool,
            stride=self._stride,
        )


def joined(parts: Sequence[TimedSteps]) -> TimedSteps:
    """Return the steps of several servers, as many of each as it has served."""
    stride = max(part.stride for part in parts)
    columns: dict[str, list[FloatArray]] = {name: [] for name in STEP_ARRAYS}
    sources: list[str] = []
    for part in parts:
        for name in STEP_ARRAYS:
            columns[name].append(getattr(part, name)[:: stride // part.stride])
        columns["source"][-1] = columns["source"][-1] + len(sources)
        sources += part.sources
    pools = [part.pool_tokens for part in parts if part.pool_tokens is not None]
    return TimedSteps(
        **{name: np.concatenate(each) for name, each in columns.items()},
        sources=tuple(sources),
        skipped=sum(part.skipped for part in parts),
        pool_tokens=min(pools, default=None),
        stride=stride,
    )


def read_timed_steps(source: Source, *, one_depth: bool = False) -> TimedSteps:
    """Read the measured steps of a trace. Raises as `profile_from_trace`.

    With `one_depth`, steps that all drafted equally deep are read, too.
    """
    trace = find_trace(source)
    rows = TimedRows()
    for step in trace.steps():
        rows.add(step)
    return require_told_apart(rows.steps(), trace.name, one_depth=one_depth)


def require_told_apart(steps: TimedSteps, name: str, *, one_depth: bool = False) -> TimedSteps:
    """Return the steps. Raises DataError where they cannot tell apart what a profile needs."""
    if len(steps.seconds) < FEWEST_STEPS:
        raise DataError(
            f"{name}: {len(steps.seconds)} measured steps, {FEWEST_STEPS} are needed; "
            "is this the `trace.directory` of a server?"
        )
    if not steps.requests.any():
        raise DataError(f"{name}: no step decoded a request")
    lacks = _lacks(steps)
    if not (one_depth or steps.shows_drafting):
        lacks.append(f"{drafted_alike(steps)}: record with several K")
    if lacks:
        raise DataError(f"{name}: {'; '.join(lacks)}")
    return steps


def drafted_alike(steps: TimedSteps) -> str:
    """Say that the time of drafting cannot be told."""
    [depth, *_] = _values(steps.depth[steps.requests > 0])
    return f"every step drafted {depth:g} deep, so drafting cannot be told from the rest of a step"


def _rows(step: RecordedStep) -> Iterator[tuple[float, ...]]:
    """Rows of a step that was measured, and of the batches of prompts before it."""
    for _, tokens, seconds in step.prompt_batches:
        if seconds > 0:
            yield seconds, 0, 0, 0, tokens, 0, 1.0
    if step.seconds is not None and step.seconds > 0 and step.batch_tokens > 0:
        load = step.batch_size, step.batch_tokens, step.context_tokens, step.prefill_tokens
        yield step.seconds, *load, step.depth, float(step.mode is Mode.OFF_COLD)


def _lacks(steps: TimedSteps) -> list[str]:
    """Say all that never varies, so that its cost cannot be told."""
    decoding = steps.requests > 0
    requests, tokens = steps.requests[decoding], steps.tokens[decoding]
    found = []
    batch_sizes = _values(requests)
    if len(batch_sizes) < 2:
        found.append(
            f"every step decoded {batch_sizes[0]:g} requests, so the cost of a request cannot be "
            "told: record at several concurrencies"
        )
    per_request = _values(np.round(tokens / requests - 1.0, 1))
    if len(per_request) < 2:
        found.append(
            f"every step verified K = {per_request[0]:g}, so verification cannot be told from the "
            "rest of a step: record with several K"
        )
    return found


def _values(column: FloatArray) -> list[float]:
    """Values that occur often enough to count; the commonest one at least."""
    values, counts = np.unique(column, return_counts=True)
    often = values[counts >= min(_FEWEST_ALIKE, int(counts.max()))]
    return [float(value) for value in often]
