"""Belief about step times: a dynamic linear model with mean and covariance.

    T = x'c (1 + error),  c >= least,  c ~ N(mean, P)

x are the features of a step (`features_of`), and c their coefficients,

    [T at the least tokens, rises of V over its segments, request, context, prompt token,
     pass, pass by request, any draft, any draft by request, any draft by context]

Where no profile is given, the first step sets the scale of a first guess and a roofline its shape:
a pass over few tokens is bound by reading the weights and takes as long for one as for `KNEE`; past
those each token costs the same. The guess is crude, but it tells that eight drafts for each of 256
requests are too many.

The covariance of what may be wrong with c
is one matrix S, `spread`: independent errors of the fixed part, of the slope over tokens and its
bends at the knots, of requests, contexts, prompts, passes and any draft, each worth a share of a
step. One matrix does four things:

* prior: P = share^2 S, around a roofline (`guess_from_scale`), or a profile with a smaller share;
* drift: in each step P grows by a small part of S, so that what is not run becomes uncertain;
* jump: three surprising steps in a row add share^2 S, and the surprise squared along the common
  level;
* all loads share c, so an observation of one tells of the others as far as S says.

Along the common level c c' the belief drifts by as much as successive surprises are correlated
(Mehra, IEEE Trans. Automatic Control 15, 1970): where all step times wander, no K becomes doubtful.

The error of an observation grows with its surprise (a Cauchy weight): one odd step moves little
even while P is wide. Huber's bound is not enough there, as it counts in units of the wide P.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Annotated

import msgspec
import numpy as np

from adaptive_spec.policies.cost_profile import LARGEST_PART, CostProfile, extended
from adaptive_spec.policies.kernels import kernel, kernel_of_kernels
from adaptive_spec.step import BoolArray, FloatArray, StepOutcome

KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
LAST = len(KNOTS)
"""Place of the rise over the last segment, which is open."""
REQUEST, CONTEXT, PREFILL, PASS, PASS_REQUEST, ANY_DRAFT, ANY_DRAFT_REQUEST, ANY_DRAFT_CONTEXT = (
    range(LAST + 1, LAST + 9)
)
SIZE = LAST + 9
FALLS = slice(1 + KNOTS.index(2), 1 + KNOTS.index(8))
"""Coefficients of the segments of V from 2 to 8 tokens, where V may fall."""
MOST_FALL = 0.1
"""Most that V falls over one of these segments, as a share of a step."""

_PASS_SHARE = 0.3
"""Time of a drafter's pass relative to a step with five passes less."""
# 16-bit weights: twice the operations per byte of memory that a GPU does at the efficiency of such
# passes, 150 to 200 on an A100 or H100.
KNEE = 160.0
"""Verified tokens up to which a pass takes as long as one token's."""

TOKENS: FloatArray = np.array(KNOTS, dtype=np.float64)
WIDTHS: FloatArray = np.diff(TOKENS, append=2.0 * TOKENS[-1])

_WIDTHS: list[float] = WIDTHS.tolist()
_RISEN: FloatArray = np.tri(LAST, SIZE)
"""[segments, P]: 1 for the step itself and each segment below its tokens."""


def features_of(outcome: StepOutcome, tokens: float, passes: float) -> FloatArray:
    """Return the features [P] of a step, whose product with the coefficients is its duration.

    Args:
        outcome: the step.
        tokens: verified tokens as the engine runs them.
        passes: of the drafter.
    """
    return features(
        outcome.batch_size,
        outcome.batch_tokens > outcome.batch_size,
        outcome.context_tokens,
        outcome.prefill_tokens,
        float(tokens),
        float(passes),
    )


def _features_loop(
    batch_size: int, drafting: bool, context: int, prompts: int, tokens: float, passes: float
) -> FloatArray:
    row = np.zeros(SIZE, np.float64)
    segment = 1
    while segment < LAST and tokens >= TOKENS[segment]:
        segment += 1
    row[:segment] = 1.0
    row[segment] = (tokens - TOKENS[segment - 1]) / WIDTHS[segment - 1]
    row[REQUEST] = batch_size
    row[CONTEXT] = context
    row[PREFILL] = prompts
    row[PASS] = passes
    row[PASS_REQUEST] = passes * batch_size
    if drafting:
        row[ANY_DRAFT] = 1.0
        row[ANY_DRAFT_REQUEST] = batch_size
        row[ANY_DRAFT_CONTEXT] = context
    return row


@kernel("float64[::1](int64, boolean, int64, int64, float64, float64)", _features_loop)
def features(
    batch_size: int, drafting: bool, context: int, prompts: int, tokens: float, passes: float
) -> FloatArray:
    """Return the features [P] of a step of these sizes; see `features_of`."""
    segment = bisect_right(KNOTS, tokens)
    row: FloatArray = _RISEN[segment - 1].copy()
    row[segment] = (tokens - KNOTS[segment - 1]) / _WIDTHS[segment - 1]
    row[REQUEST:PREFILL] = batch_size, context
    row[PREFILL] = prompts
    row[PASS:ANY_DRAFT] = passes, passes * batch_size
    if drafting:
        row[ANY_DRAFT:] = 1.0, batch_size, context
    return row


def _features_of_plans_loop(
    batch_size: int, drafting: BoolArray, context: int, tokens: FloatArray, passes: FloatArray
) -> FloatArray:
    rows = np.empty((len(tokens), SIZE), np.float64)
    for a in range(len(tokens)):
        rows[a] = features(batch_size, drafting[a], context, 0, tokens[a], passes[a])
    return rows


@kernel(
    "float64[:, ::1](int64, boolean[:], int64, float64[:], float64[:])",
    _features_of_plans_loop,
)
def features_of_plans(
    batch_size: int, drafting: BoolArray, context: int, tokens: FloatArray, passes: FloatArray
) -> FloatArray:
    """Return the features [A, P] of steps without prompts.

    Args:
        batch_size: of all.
        drafting: [A] whether any draft is verified.
        context: of all.
        tokens: [A] verified tokens as the engine runs them.
        passes: [A] of the drafter.
    """
    segment = np.searchsorted(TOKENS, tokens, side="right")
    rows: FloatArray = _RISEN[segment - 1]
    rows[np.arange(len(rows)), segment] = (tokens - TOKENS[segment - 1]) / WIDTHS[segment - 1]
    rows[:, REQUEST:PREFILL] = batch_size, context
    rows[:, PASS:ANY_DRAFT] = passes[:, None] * (1.0, batch_size)
    rows[:, ANY_DRAFT:] = drafting[:, None] * (1.0, batch_size, context)
    return rows


def guess_from_scale(seconds: float, outcome: StepOutcome) -> FloatArray:
    """Return the coefficients [P] of a roofline, from the duration of a single step."""
    passes = max(outcome.draft_depth, 1)
    guess = np.zeros(SIZE)
    guess[PASS] = _PASS_SHARE * seconds / (passes + 5.0)
    verify = seconds - passes * guess[PASS]
    verify /= max((outcome.batch_tokens + outcome.prefill_tokens) / KNEE, 1.0)
    guess += verify * roofline(KNEE)
    return guess


def roofline(knee: float) -> FloatArray:
    """Return the coefficients [P] of passes that take 1 up to so many tokens, and then 1 / knee."""
    heights = np.maximum(np.append(TOKENS, TOKENS[-1] + WIDTHS[-1]) / knee, 1.0)
    found = np.zeros(SIZE)
    found[0] = heights[0]
    found[1 : LAST + 1] = np.diff(heights)
    found[PREFILL] = 1.0 / knee  # a prompt's token is as much work as a draft
    return found


def guess_from_profile(profile: CostProfile) -> FloatArray:
    """Return a profile's coefficients [P]."""
    heights = extended(profile, TOKENS)
    guess = np.zeros(SIZE)
    guess[0] = heights[0]
    least = np.zeros(LAST - 1)
    least[FALLS.start - 1 : FALLS.stop - 1] = -MOST_FALL * heights[0]
    guess[1:LAST] = np.maximum(np.diff(heights), least)
    guess[LAST] = guess[LAST - 1] / WIDTHS[-2] * WIDTHS[-1]
    guess[REQUEST] = profile.per_request
    guess[CONTEXT] = profile.per_context_token
    guess[PREFILL] = profile.per_prefill_token
    guess[PASS] = profile.draft_pass
    guess[PASS_REQUEST] = profile.draft_pass_per_request
    guess[ANY_DRAFT] = profile.any_draft
    guess[ANY_DRAFT_REQUEST] = profile.any_draft_per_request
    guess[ANY_DRAFT_CONTEXT] = profile.any_draft_per_context_token
    return guess


def heights_of(coefficients: FloatArray) -> FloatArray:
    """V at the knots [S], above V at the first."""
    heights = np.zeros(LAST)
    np.cumsum(coefficients[1:LAST], out=heights[1:])
    return heights


def as_profile(coefficients: FloatArray) -> CostProfile:
    """The coefficients as a profile."""
    return CostProfile(
        name="learned",
        source="online",
        tokens=list(KNOTS),
        seconds=[max(float(coefficients[0] + h), 1e-6) for h in heights_of(coefficients)],
        per_request=float(coefficients[REQUEST]),
        per_context_token=float(coefficients[CONTEXT]),
        per_prefill_token=float(coefficients[PREFILL]),
        draft_pass=float(coefficients[PASS]),
        draft_pass_per_request=float(coefficients[PASS_REQUEST]),
        any_draft=float(coefficients[ANY_DRAFT]),
        any_draft_per_request=float(coefficients[ANY_DRAFT_REQUEST]),
        any_draft_per_context_token=float(coefficients[ANY_DRAFT_CONTEXT]),
    )


_SWEEPS = 12
"""Sweeps of the descent; the forces of the step before are where it starts."""


def _condition_loop(
    mean: FloatArray,
    covariance: FloatArray,
    push: FloatArray,
    least: FloatArray,
    coefficients: FloatArray,
    features: FloatArray,
    seconds: float,
    variance: float,
) -> None:
    size = len(mean)
    side = np.zeros(size)
    for p in range(size):
        if features[p] != 0.0:
            for q in range(size):
                side[q] += features[p] * covariance[p, q]
    total = 0.0
    surprise = seconds
    for p in range(size):
        total += features[p] * side[p]
        surprise -= features[p] * mean[p]
    total = max(total, 0.0) + variance
    for p in range(size):
        gain = side[p] / total
        mean[p] += gain * surprise
        for q in range(size):
            covariance[p, q] -= gain * side[q]
    for p in range(size):
        coefficients[p] = mean[p]
    for p in range(size):
        if push[p] != 0.0:
            for q in range(size):
                coefficients[q] += push[p] * covariance[p, q]
    for _ in range(_SWEEPS):
        moved = False
        held = (push > 0.0) | (coefficients < least)
        for p in range(size):
            if not held[p] or covariance[p, p] <= 0.0:
                continue
            wanted = push[p] + (least[p] - coefficients[p]) / covariance[p, p]
            more = max(wanted, 0.0) - push[p]
            if more != 0.0:
                moved = True
                push[p] += more
                for q in range(size):
                    coefficients[q] += more * covariance[p, q]
        if not moved:
            break
    for p in range(size):
        coefficients[p] = max(coefficients[p], least[p])


@kernel(
    "void(float64[::1], float64[:, ::1], float64[::1], float64[::1], float64[::1], float64[::1],"
    " float64, float64)",
    _condition_loop,
)
def condition(
    mean: FloatArray,
    covariance: FloatArray,
    push: FloatArray,
    least: FloatArray,
    coefficients: FloatArray,
    features: FloatArray,
    seconds: float,
    variance: float,
) -> None:
    """Condition a Gaussian over coefficients on an observation, in place.

    `coefficients` become those of the greatest density at or above `least`: mean + P f with forces
    f >= 0, by coordinate ascent of the dual problem. The mean itself is not bounded, so that a
    bound that has held back an observation lets go again.

    Args:
        mean: [P] of the Gaussian.
        covariance: [P, P] P.
        push: [P] forces that hold coefficients at their bounds.
        least: [P] bounds.
        coefficients: [P] result.
        features: [P] x of the observation x'c.
        seconds: the observation.
        variance: of its error (seconds squared), > 0.
    """
    side = covariance @ features
    gain = side / (max(float(features @ side), 0.0) + variance)
    mean += gain * (seconds - float(features @ mean))
    covariance -= gain[:, None] * side
    coefficients[:] = mean + push @ covariance
    left = _SWEEPS
    while left and (held := np.flatnonzero((push > 0.0) | (coefficients < least))).size:
        rows = covariance[held]
        forces = _swept(rows[:, held], push[held], least[held] - coefficients[held], left)
        after = coefficients + (forces - push[held]) @ rows
        below = after < least
        below[:, held] = False
        below_ever = below.any(axis=1)
        entered = bool(below_ever.any())  # from that sweep on, another bound holds, too
        last = int(below_ever.argmax()) if entered else len(forces) - 1
        push[held], coefficients[:] = forces[last], after[last]
        left = left - last - 1 if entered else 0
    np.maximum(coefficients, least, out=coefficients)


def _expect_loop(
    coefficients: FloatArray, covariance: FloatArray, features: FloatArray, level: float
) -> tuple[float, float]:
    size = len(features)
    expected = 0.0
    for p in range(size):
        expected += features[p] * coefficients[p]
    variance = 0.0
    for p in range(size):
        side = 0.0
        for q in range(size):
            covariance[p, q] += level * coefficients[p] * coefficients[q]
            side += covariance[p, q] * features[q]
        variance += features[p] * side
    return expected, variance


@kernel("UniTuple(float64, 2)(float64[::1], float64[:, ::1], float64[::1], float64)", _expect_loop)
def expect(
    coefficients: FloatArray, covariance: FloatArray, features: FloatArray, level: float
) -> tuple[float, float]:
    """Let the covariance [P, P] drift along the common level, by `level` times c c'.

    Returns x'c and x'P x of features x [P].
    """
    covariance += coefficients[:, None] * (level * coefficients)
    return float(features @ coefficients), float(features @ covariance @ features)


def _swept(block: FloatArray, push: FloatArray, lacking: FloatArray, most: int) -> FloatArray:
    """Forces [sweeps, H] on the bounds that hold, after each sweep until nothing moves.

    Lists: a number of an array takes as long as a row of a list.

    Args:
        block: [H, H] covariance.
        push: [H] forces before.
        lacking: [H] from the coefficients up to their bounds.
        most: sweeps.
    """
    rows, force, lack = block.tolist(), push.tolist(), lacking.tolist()
    found: list[list[float]] = []
    for _ in range(most):
        moved = False
        held = [f > 0.0 or short > 0.0 for f, short in zip(force, lack, strict=True)]
        for n, row in enumerate(rows):
            if not held[n] or row[n] <= 0.0:
                continue
            wanted = max(force[n] + lack[n] / row[n], 0.0)
            more = wanted - force[n]
            if more != 0.0:
                moved = True
                force[n] += more
                lack = [each - more * own for each, own in zip(lack, row, strict=True)]
        found.append([*force])
        if not moved:
            break
    return np.array(found)


# After a jump, the parts are as uncertain as those of a roofline.
_SHARE, _SHARE_OF_PROFILE = 0.3, 0.03
"""Prior standard deviation of each part, relative to a step: roofline, profile."""
_BEND, _MINOR = 0.5, 0.3
"""Standard deviation relative to `_SHARE`: bends; contexts and any draft."""
_EARLY_KNEE, _LATE_KNEE, _KNEE_SHARE = 96.0, 256.0, 2.0
"""Knees beside `KNEE` (tokens), and how far the belief may lie from it to them, likewise."""
_FAR = KNOTS.index(192)
"""Last bend that belongs to the slope of prompt tokens as well."""
_DRIFT, _DRIFT_STEPS = 1e-6, 16
"""Share of a jump's variance that drifts per step; steps between additions."""
_LEAST_LEVEL, _MOST_LEVEL, _LEVEL_RATE, _LEVEL_DECAY = 1e-7, 1e-2, 0.1, 0.1
"""Relative variance of the level's drift per step: bounds, learning rate, decay."""
_NOISE, _LEAST_NOISE, _NOISE_RATE, _NOISE_STEPS = 0.03, 0.003, 0.02, 8
"""Relative standard deviation of a step: prior, least, learning rate, prior's steps."""
_DISBELIEF = 0.3
"""Error of an observation, relative to its surprise."""
# A jump takes three steps in a row. With two, false alarms cost 0.3 % of throughput where
# nothing changes.
_CLIP, _JUMP, _JUMP_RATE = 3.0, 1.9, 0.3
"""Surprises (standard deviations): clip, mean that is a jump, averaging rate."""
_PROMPT_ERROR = 0.15
"""Relative error of the time of prompts, which is not linear."""


_OTHER_KNEES: FloatArray = _KNEE_SHARE * np.stack(
    [roofline(knee) - roofline(KNEE) for knee in (_EARLY_KNEE, _LATE_KNEE)]
)


_PARTS = np.arange(REQUEST, SIZE)
_PART_SHARES: FloatArray = np.array([1.0, _MINOR, 0.3, 1.0, 1.0, _MINOR, _MINOR, _MINOR])
"""By coefficient from `REQUEST` on: its standard deviation, relative, by the size of a step."""


def _constant_spread() -> tuple[FloatArray, FloatArray]:
    """Parts of S [P, P]: of the step and the place of the knee; of the slope, by tokens ** -2."""
    slope = np.zeros((LAST, SIZE))
    slope[:, 1 : LAST + 1] = np.triu(np.broadcast_to(WIDTHS, (LAST, LAST)))
    # Past the knee a draft and a prompt token are the same work.
    slope[:_FAR, PREFILL] = 1.0
    slope[1:] *= _BEND
    fixed = np.zeros((1, SIZE))
    fixed[0, 0] = 1.0
    step = np.concatenate((fixed, _OTHER_KNEES))
    return step.T @ step, slope.T @ slope


_OF_STEP, _OF_SLOPE = _constant_spread()


def _spread_loop(
    batch: float, context: float, tokens: float, passes: float, seconds: float
) -> FloatArray:
    spread = np.empty((SIZE, SIZE), np.float64)
    for p in range(SIZE):
        for q in range(SIZE):
            spread[p, q] = (
                seconds * seconds * (_OF_STEP[p, q] + _OF_SLOPE[p, q] / (tokens * tokens))
            )
    sizes = (batch, context, tokens, passes, passes * batch, 1.0, batch, context)
    for n in range(len(sizes)):
        part = seconds * _PART_SHARES[n] / sizes[n]
        spread[REQUEST + n, REQUEST + n] += part * part
    return spread


@kernel("float64[:, ::1](float64, float64, float64, float64, float64)", _spread_loop)
def spread_of(
    batch: float, context: float, tokens: float, passes: float, seconds: float
) -> FloatArray:
    """Return S [P, P] of a step of these sizes that takes so long."""
    spread: FloatArray = _OF_STEP + _OF_SLOPE / tokens**2
    sizes = batch, context, tokens, passes, passes * batch, 1.0, batch, context
    spread[_PARTS, _PARTS] += (_PART_SHARES / sizes) ** 2
    spread *= seconds**2
    return spread


def _covariances_loop(
    rows: FloatArray, coefficients: FloatArray, covariance: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    number = len(rows)
    seconds = np.empty(number, np.float64)
    times, drift = np.empty((number, number), np.float64), np.empty((number, number), np.float64)
    scaled, sides = np.empty((number, SIZE), np.float64), np.empty((2, SIZE), np.float64)
    for a in range(number):
        expected = 0.0
        for p in range(SIZE):
            expected += rows[a, p] * coefficients[p]
        seconds[a] = max(expected, 1e-6)
        for p in range(SIZE):
            scaled[a, p] = rows[a, p] / seconds[a]
    for a in range(number):
        sides[:] = 0.0
        for p in range(SIZE):
            if scaled[a, p] != 0.0:
                for q in range(SIZE):
                    sides[0, q] += scaled[a, p] * covariance[p, q]
                    sides[1, q] += scaled[a, p] * spread[p, q]
        for b in range(number):
            of_times = 0.0
            of_drift = 0.0
            for q in range(SIZE):
                of_times += sides[0, q] * scaled[b, q]
                of_drift += sides[1, q] * scaled[b, q]
            times[a, b] = of_times
            drift[a, b] = _DRIFT * _SHARE * _SHARE * of_drift
    return seconds, times, drift


@kernel(
    "Tuple((float64[::1], float64[:, ::1], float64[:, ::1]))(float64[:, :], float64[::1],"
    " float64[:, ::1], float64[:, ::1])",
    _covariances_loop,
)
def covariances(
    rows: FloatArray, coefficients: FloatArray, covariance: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """See `Belief.covariance`; coefficients [P], covariance and S [P, P] are what is believed."""
    seconds = np.maximum(rows @ coefficients, 1e-6)
    scaled = rows / seconds[:, None]
    drift = _DRIFT * _SHARE**2 * (scaled @ spread @ scaled.T)
    return seconds, scaled @ covariance @ scaled.T, drift


_ABSURD = 100.0
"""Factor between measured and expected times, three steps in a row, that no change explains."""


@kernel_of_kernels(
    "Tuple((boolean, boolean, float64, float64, float64, float64, float64))(float64[::1],"
    " float64[:, ::1], float64[::1], float64[::1], float64[::1], float64[::1], float64, float64,"
    " float64, float64, int64, float64, float64, float64, float64)"
)
def take_up(
    mean: FloatArray,
    covariance: FloatArray,
    push: FloatArray,
    least: FloatArray,
    coefficients: FloatArray,
    features: FloatArray,
    seconds: float,
    batch: float,
    context: float,
    passes: float,
    steps: int,
    noise: float,
    level: float,
    surprise: float,
    before: float,
) -> tuple[bool, bool, float, float, float, float, float]:
    """Take up the time of a step: `condition`, after drift and a possible jump. In place.

    Args:
        mean: [P] of the Gaussian.
        covariance: [P, P]
        push: [P] forces that hold coefficients at their bounds.
        least: [P] bounds.
        coefficients: [P] the most likely ones within their bounds.
        features: [P] of the step.
        seconds: measured.
        batch: requests of the step.
        context: their tokens.
        passes: of the drafter in a typical step.
        steps: taken up, with this one.
        noise: relative variance of a step's time.
        level: relative variance of the level's drift per step.
        surprise: mean of the last surprises (standard deviations).
        before: the last one of them.

    Returns whether step times have jumped, whether the step was too far from what is believed, its
    expected seconds without prompts, and the last four arguments after it.
    """
    expected, variance = expect(coefficients, covariance, features, level)
    expected = max(expected, 1e-6)
    of_prompts = float(coefficients[PREFILL] * features[PREFILL])
    plain = max(expected - of_prompts, 1e-6)
    tokens = min(batch * (1.0 + passes), KNEE)
    if steps % _DRIFT_STEPS == 0:
        spread = spread_of(batch, context, tokens, passes, plain)
        covariance += _DRIFT * _DRIFT_STEPS * _SHARE**2 * spread
        # Rounding must not add up to a matrix that is no covariance.
        covariance[:] = 0.5 * (covariance + covariance.T)
        variance = expect(coefficients, covariance, features, 0.0)[1]
    error = noise + (_PROMPT_ERROR * min(of_prompts / expected, 1.0)) ** 2
    total = max(variance, 0.0) / (expected * expected) + error
    off = seconds / expected - 1.0
    z = min(max(off / math.sqrt(total), -_CLIP), _CLIP)
    surprise += _JUMP_RATE * (z - surprise)
    jumped = abs(surprise) > _JUMP
    absurd = jumped and not 1.0 / _ABSURD < seconds / expected < _ABSURD
    if jumped:
        surprise = 0.0
        longer = plain * max(seconds / expected, 1.0)
        covariance += _SHARE**2 * spread_of(batch, context, tokens, passes, longer)
        expect(coefficients, covariance, features, off * off)
    elif features[PREFILL] == 0.0:
        heard = min(max(before * z - _LEVEL_DECAY, -4.0), 4.0)
        level = min(max(level * math.exp(_LEVEL_RATE * heard), _LEAST_LEVEL), _MOST_LEVEL)
        # While the belief is wide, a surprise tells little of the noise.
        more = (min(off * off, _CLIP**2 * total) - total) * (error / total) ** 2
        rate = max(_NOISE_RATE, 1.0 / (_NOISE_STEPS + steps))
        noise = min(max(noise + rate * more, _LEAST_NOISE**2), 1.0)
    # Not `expected**2`, which raises where a product is infinite.
    variance = (error + (_DISBELIEF * off) ** 2) * expected * expected
    condition(mean, covariance, push, least, coefficients, features, seconds, variance)
    return jumped, absurd, plain, noise, level, surprise, z


class SavedBelief(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A belief about step times, saved for the next start. Seconds.

    Attributes:
        mean: [P] of the coefficients.
        covariance: rows [1], [2], ... [P] of the lower triangle.
        noise: relative variance of a step's time.
    """

    mean: list[float]
    covariance: list[list[float]]
    noise: Annotated[float, msgspec.Meta(gt=0, le=1)]

    def check(self) -> None:
        """Raise ValueError if this is no belief."""
        if len(self.mean) != SIZE or [len(row) for row in self.covariance] != [*range(1, SIZE + 1)]:
            raise ValueError(f"{SIZE} coefficients and the lower triangle of theirs expected")
        covariance = self.matrix()
        if not (np.isfinite(self.mean).all() and np.isfinite(covariance).all()):
            raise ValueError("every number must be finite")
        if np.abs(self.mean).max() > LARGEST_PART or covariance.max() > LARGEST_PART**2:
            raise ValueError(f"no part of a step takes more than {LARGEST_PART:g} s")
        scale = np.sqrt(np.diag(covariance).clip(1e-300))
        if np.linalg.eigvalsh(covariance / scale / scale[:, None]).min() < -1e-6:
            raise ValueError("`covariance` must be positive semi-definite")

    def matrix(self) -> FloatArray:
        """Return the covariance [P, P]."""
        lower = np.zeros((SIZE, SIZE))
        for number, row in enumerate(self.covariance):
            lower[number, : number + 1] = row
        return lower + np.tril(lower, -1).T


class Belief:
    """Gaussian belief about the coefficients of step times. Seconds.

    Attributes:
        coefficients: [P] the most likely ones within their bounds.
        noise: relative variance of a step's time.
        jumps: times that step times have jumped.
        absurd: the last step was too far from what is believed to learn anything but its scale.
    """

    def __init__(self, passes: float) -> None:
        """Believe nothing yet; `passes` of the drafter in a typical step."""
        self._passes = passes
        self._mean: FloatArray = np.zeros(SIZE)
        self._covariance: FloatArray = np.zeros((SIZE, SIZE))
        self._least: FloatArray = np.zeros(SIZE)
        self._push: FloatArray = np.zeros(SIZE)
        self.coefficients: FloatArray = np.zeros(SIZE)
        self.noise = _NOISE**2
        self._level, self._surprise, self._before = _LEAST_LEVEL, 0.0, 0.0
        self._steps = self.jumps = 0
        self.absurd = False
        self._last = 1, 1, 1e-6
        """Batch size, tokens of context and seconds of the last step."""

    def begin_with_profile(self, profile: CostProfile) -> None:
        """Believe a profile."""
        seconds = profile.seconds[0]
        self._begin(guess_from_profile(profile), _SHARE_OF_PROFILE, 16, 4096, seconds)

    def restore(self, saved: SavedBelief) -> None:
        """Believe what was saved, after `begin_with_profile`: as the machine may be another one."""
        self._mean[:] = saved.mean
        self._covariance += saved.matrix()
        self.noise = saved.noise

    def saved(self) -> SavedBelief:
        """Return what is believed."""
        symmetric = 0.5 * (self._covariance + self._covariance.T)
        return SavedBelief(
            mean=self._mean.tolist(),
            covariance=[symmetric[n, : n + 1].tolist() for n in range(SIZE)],
            noise=self.noise,
        )

    def begin_with_step(self, outcome: StepOutcome, seconds: float) -> None:
        """Believe a roofline of this step's scale."""
        guess = guess_from_scale(seconds, outcome)
        plain = max(seconds - float(guess[PREFILL]) * outcome.prefill_tokens, 0.1 * seconds)
        self._begin(guess, _SHARE, outcome.batch_size, outcome.context_tokens, plain)

    def _begin(
        self, guess: FloatArray, share: float, batch: int, context: int, seconds: float
    ) -> None:
        self._mean[:] = self.coefficients[:] = guess
        self._least[FALLS] = -MOST_FALL * guess[0]
        self._covariance[:] = share**2 * self._spread(batch, context, seconds)
        self._push[:] = 0.0

    def relative_variance(self, features: FloatArray, seconds: float) -> float:
        """Variance of what is believed of a step's time, relative to `seconds`; without noise."""
        return max(float(features @ self._covariance @ features), 0.0) / seconds**2

    def covariance(self, rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Seconds [A] of steps with features `rows` [A, P], and covariances [A, A].

        The first is that of the logarithms of the seconds; the second is by how much the first
        grows in a step.
        """
        return covariances(rows, self.coefficients, self._covariance, self._spread(*self._last))

    def ratios(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Durations over that of the last step of each row, and variances of their logarithms.

        Args:
            rows: [..., A, P] features of steps; both results are [..., A].
        """
        seconds = np.maximum(rows @ self.coefficients, 1e-6)
        scaled = rows / seconds[..., None]
        apart = scaled - scaled[..., -1:, :]
        variance: FloatArray = ((apart @ self._covariance) * apart).sum(axis=-1)
        return seconds / seconds[..., -1:], np.maximum(variance, 0.0)

    def error(self, seconds: FloatArray, prompts: float) -> FloatArray:
        """Return the relative variance of step times beside prompts that take `prompts` s."""
        share = prompts / seconds
        return self.noise * (1.0 + share) ** 2 + (_PROMPT_ERROR * share) ** 2

    def error_of(self, outcome: StepOutcome, expected: float) -> float:
        """Relative variance of the measured time of a step, were the coefficients known."""
        prompts = float(self.coefficients[PREFILL]) * outcome.prefill_tokens / expected
        return self.noise + (_PROMPT_ERROR * min(prompts, 1.0)) ** 2

    def learn_step_time(self, outcome: StepOutcome, features: FloatArray, seconds: float) -> bool:
        """Take up a step's time; True if step times have jumped."""
        self._steps += 1
        (
            jumped,
            self.absurd,
            plain,
            self.noise,
            self._level,
            self._surprise,
            self._before,
        ) = take_up(
            self._mean,
            self._covariance,
            self._push,
            self._least,
            self.coefficients,
            features,
            seconds,
            float(outcome.batch_size),
            float(max(outcome.context_tokens, 1)),
            self._passes,
            self._steps,
            self.noise,
            self._level,
            self._surprise,
            self._before,
        )
        self._last = outcome.batch_size, outcome.context_tokens, plain
        self.jumps += jumped
        return jumped

    def widen(self) -> None:
        """Add the covariance of a jump: step times may have changed unseen."""
        batch, context, seconds = self._last
        self._covariance += _SHARE**2 * self._spread(batch, context, seconds)

    def _spread(self, batch: int, context: int, seconds: float) -> FloatArray:
        """S [P, P]: what may be wrong with the coefficients, each part by a plain step."""
        tokens, passes = min(batch * (1.0 + self._passes), KNEE), self._passes
        return spread_of(float(batch), float(max(context, 1)), tokens, passes, seconds)
