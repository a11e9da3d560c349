"""Belief 2: how long a step takes.

A step of B requests, N verified tokens and D passes of the drafter takes

    T = T0 L x'c,    c >= 0,

with x = [1, the part of N in each segment between knots, B, context tokens, prompt tokens, passes,
passes x B, any draft, any draft x context tokens, ragged x V, whole tiles of N]. c ~ N(mean, P): a
roofline whose knee, bends, tiles and parts may all be wrong by `SHARE` of a step. T0 is the first
step. L is one common level of all step times, which other tenants or a clock move. A jump is first
one of L, beside which the parts widen little, and then one of the parts, if residuals stay odd.

The first steps are learned again, once there are more, with the noise that makes them likeliest.

Odd steps count little: the variance of an observation grows by (0.3 x its error)^2, which weighs as
a Cauchy distribution does.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np

from adaptive_spec.policies.kernels import kernel_of_kernels
from adaptive_spec.policies.two_beliefs.gaussian import (
    SavedGaussian,
    condition,
    likeliest_nonnegative,
    saved_gaussian,
)
from adaptive_spec.step import BoolArray, Capability, FloatArray, StepOutcome

KNEE = 160.0
"""Tokens up to which a pass is bound by reading 16-bit weights (roofline of the mean)."""
OTHER_KNEES = (96.0, 256.0)
"""Tokens of other knees that the prior holds possible (8-bit weights, slow memory)."""
KNOTS = np.array([1.0, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024])
"""Tokens between which verify time is linear."""
TILE = 128.0
"""Tokens of a tile of the matrix products: an A100 takes as long for a part of one."""
SHARE = 0.3
"""Standard deviation of each part of the prior, as a share of a step."""
BEND = 0.5
"""Standard deviation of a bend at a knot, as a share of the slope past the knee."""
PASS = 0.06
"""Seconds of a drafter's pass over those of a verify pass (prior mean)."""
DRIFT = 1e-6
"""Variance that the parts gain in each step, as a share of the prior's."""
ODD = 0.3
"""Share of its own error by which an observation is less sure (Cauchy weight)."""
FIRST_NOISE, LEAST_NOISE, MOST_NOISE = 0.08, 0.003, 1.0
"""Relative noise of a step's time: assumed at first, and its bounds."""
PROMPT_ERROR = 0.15
"""Relative error of the predicted time of prompts in a step."""
SURPRISED = 1.9
"""Mean surprise (standard deviations, over some three steps) that is called a jump."""
SETTLING = 30
"""Steps before anything may jump, and after a jump of the level before the parts may."""
JUMP = 0.05
"""Variance that a jump adds to the level, besides its square."""
NOISES = [0.003 * 2.0**n for n in range(9)]
"""Relative noise that the first steps are learned with, to find which fits them."""
BESIDE_LEVEL = 0.03
"""Share of the prior variance that parts gain as the level jumps: one may have changed alone."""
LEAST_DRIFT, MOST_DRIFT = 1e-8, 1e-2
"""Bounds of the level's variance per step, which is learned."""

_SEGMENTS = len(KNOTS)
REQUEST, CONTEXT, PREFILL, PASSES, PASS_REQUEST, ANY, ANY_CONTEXT, RAGGED, TILES = range(
    _SEGMENTS + 1, _SEGMENTS + 10
)
SIZE = _SEGMENTS + 10
_WIDTHS = np.diff(KNOTS, append=2.0 * KNOTS[-1])
_ENDS = np.append(KNOTS, 2.0 * KNOTS[-1])


def roofline(knee: float = KNEE) -> FloatArray:
    """Return [P] of a pass that takes 1 up to the knee (tokens), and 1 / knee per token past it."""
    mean = np.zeros(SIZE)
    mean[0] = 1.0
    mean[1 : _SEGMENTS + 1] = np.diff(np.maximum(_ENDS / knee, 1.0))
    mean[PREFILL], mean[PASSES] = 1.0 / knee, PASS
    return mean


def _bends() -> FloatArray:
    """[knots, P] a bend of the verify time at each knot, which all segments past it share."""
    rises = np.zeros((_SEGMENTS, SIZE))
    rises[:, 1 : _SEGMENTS + 1] = np.triu(np.broadcast_to(_WIDTHS, (_SEGMENTS, _SEGMENTS)))
    # Past the knee the token of a prompt is as much work as a draft.
    rises[KNOTS <= 192.0, PREFILL] = 1.0
    rises[1:] *= BEND
    return rises


_BENDS = _bends()
_KNEES = np.stack([2.0 * (roofline(knee) - roofline()) for knee in OTHER_KNEES])


def prior_covariance(batch: float, context: float, kmax: int, penalty: float) -> FloatArray:
    """Return S [P, P]: each part of a step of these sizes may be wrong by `SHARE` of the step."""
    tokens, passes = min(batch * (1.0 + 0.5 * kmax), KNEE), 0.5 * kmax
    covariance = _KNEES.T @ _KNEES
    covariance[0, 0] += 1.0
    rises = _BENDS / tokens
    covariance += rises.T @ rises
    rest = np.arange(REQUEST, SIZE)
    sizes = np.array(
        [
            batch,
            3.0 * max(context, 1.0),
            3.0 * tokens,
            passes,
            passes * batch,
            # Drafts are tokens first: else the part "any draft" takes what the segments would.
            10.0,
            10.0 * max(context, 1.0),
            SHARE / (penalty + 1e-9),
            SHARE / (BEND * TILE / KNEE),
        ]
    )
    covariance[rest, rest] += sizes**-2.0
    return SHARE**2 * covariance


@kernel_of_kernels("float64(float64[::1], float64)")
def padded_size(buckets: FloatArray, tokens: float) -> float:
    """Return the tokens that run: the captured size of `buckets` [n], if one is large enough."""
    place = np.searchsorted(buckets, tokens)
    return float(buckets[place]) if place < len(buckets) else tokens


@kernel_of_kernels(
    "void(float64[:, ::1], float64[::1], float64, float64[::1], float64, float64[::1], float64)"
)
def fill_rows(
    x: FloatArray,
    buckets: FloatArray,
    batch: float,
    tokens: FloatArray,
    context: float,
    passes: FloatArray,
    prefill: float,
) -> None:
    """Overwrite x [A, P] with the features of steps that are not ragged.

    Args:
        x: [A, P]
        buckets: [n] captured sizes, ascending.
        batch: B.
        tokens: [A] N.
        context: tokens.
        passes: [A] D.
        prefill: prompt tokens.
    """
    last = len(KNOTS) - 1
    for a in range(len(x)):
        run = padded_size(buckets, tokens[a])
        x[a, 0] = 1.0
        for s in range(last):
            x[a, 1 + s] = min(max((run - KNOTS[s]) / _WIDTHS[s], 0.0), 1.0)
        x[a, 1 + last] = max((run - KNOTS[last]) / _WIDTHS[last], 0.0)
        some = 1.0 if tokens[a] > batch else 0.0
        x[a, REQUEST], x[a, CONTEXT], x[a, PREFILL] = batch, context, prefill
        x[a, PASSES], x[a, PASS_REQUEST] = passes[a], passes[a] * batch
        x[a, ANY], x[a, ANY_CONTEXT], x[a, RAGGED] = some, some * context, 0.0
        x[a, TILES] = math.floor((run - 1.0) / TILE)


@kernel_of_kernels("float64[::1](float64[::1], float64[::1], float64, float64)")
def verify_times(c: FloatArray, tokens: FloatArray, batch: float, context: float) -> FloatArray:
    """Return the verify time [n] of ascending tokens [n] that run; the first has no drafts."""
    found = np.empty(len(tokens))
    last = len(KNOTS) - 1
    segment, height = 0, 0.0  # of the time at the segment's begin
    common = c[0] + c[REQUEST] * batch + c[CONTEXT] * context
    for n in range(len(tokens)):
        while segment < last and tokens[n] >= KNOTS[segment + 1]:
            height += c[1 + segment]
            segment += 1
        inside = max((tokens[n] - KNOTS[segment]) / _WIDTHS[segment], 0.0)
        time = common + height + c[1 + segment] * inside
        time += c[TILES] * math.floor((tokens[n] - 1.0) / TILE)
        if n:
            time += c[ANY] + c[ANY_CONTEXT] * context
        found[n] = max(time, 0.05)
    return found


@kernel_of_kernels(
    "float64(float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], boolean[::1], float64)"
)
def learn_again(
    mean: FloatArray,
    covariance: FloatArray,
    rows: FloatArray,
    seconds: FloatArray,
    ragged: BoolArray,
    noise: float,
) -> float:
    """Condition a prior on steps as if their noise had been known. In place.

    Args:
        mean: [P]
        covariance: [P, P]
        rows: [n, P] features, their ragged part overwritten.
        seconds: [n] in units.
        ragged: [n]
        noise: relative standard deviation.

    Returns the logarithm of how likely the steps were, far ones at most three deviations off.
    """
    score = 0.0
    for n in range(len(rows)):
        x = rows[n]
        c = likeliest_nonnegative(mean, covariance)
        x[RAGGED] = 0.0
        expected = 0.0
        for p in range(len(mean)):
            expected += x[p] * c[p]
        if ragged[n]:
            x[RAGGED] = expected - x[PASSES] * c[PASSES]
            expected += x[RAGGED] * c[RAGGED]
        expected = max(expected, 1e-3)
        off = seconds[n] - expected
        error = (noise * expected) ** 2 + (PROMPT_ERROR * c[PREFILL] * x[PREFILL]) ** 2
        known = error
        for p in range(len(mean)):
            if x[p] != 0.0:
                for q in range(len(mean)):
                    known += x[p] * covariance[p, q] * x[q]
        score -= 0.5 * (math.log(known) + min(off * off / known, 9.0))
        condition(mean, covariance, x, seconds[n], error + (ODD * off) ** 2)
    return score


def padded(buckets: FloatArray, tokens: FloatArray) -> FloatArray:
    """Return the tokens [A] of the captured sizes that run."""
    return np.array([padded_size(buckets, each) for each in tokens])


class SavedStepTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Belief about step times as JSON.

    Attributes:
        parts: belief about c, in units.
        unit: T0 L, seconds.
        noise: variance of a step's time, relative.
        steps: timed.
    """

    parts: SavedGaussian
    unit: Annotated[float, msgspec.Meta(ge=1e-12, le=60.0)]
    noise: Annotated[float, msgspec.Meta(ge=LEAST_NOISE**2, le=MOST_NOISE)]
    steps: Annotated[int, msgspec.Meta(ge=0)]


class StepTimes:
    """Belief about the step times of one engine.

    Attributes:
        mean, covariance: [P], [P, P] of c, in units of T0 L.
        coefficients: [P] the likeliest c >= 0.
        level: L.
        noise: variance of a step's time, relative.
        steps: timed so far.
    """

    def __init__(self, capability: Capability) -> None:
        self._capability = capability
        kmax = capability.max_draft_tokens
        self._guess = roofline()
        self._guess[RAGGED] = capability.ragged_penalty
        self._spreads: dict[tuple[int, int], FloatArray] = {}
        self._padded: dict[int, FloatArray] = {}
        self.buckets = np.array(capability.token_buckets, dtype=np.float64)
        self.passes: FloatArray = np.arange(kmax + 1, dtype=np.float64)
        if capability.off_pass:
            self.passes[0] = 1.0 if capability.steers_depth else kmax
        self.mean, self.coefficients = self._guess.copy(), self._guess
        self._prior = self.spread(16, 4096)
        self.covariance = self._prior.copy()
        self._first = 0.0
        self._first_was_prompts = False
        self.level, self._level_variance, self._level_drift = 1.0, 0.0, 1e-7
        self.noise, self.steps = FIRST_NOISE**2, 0
        self._surprise = self._last_surprise = self._alike = 0.0
        self._level_jumped = -SETTLING
        self._kept = 0
        self._rows: FloatArray = np.zeros((SETTLING, SIZE))
        self._seconds: FloatArray = np.zeros(SETTLING)
        self._ragged: BoolArray = np.zeros(SETTLING, dtype=np.bool_)
        self._timed: dict[int, FloatArray] = {}
        """By load, within factors of two: [Kmax + 1] steps timed with about K drafts a request."""

    @property
    def scale(self) -> float:
        """Seconds of a unit: T0 L; 0 before the first step."""
        return self._first * self.level

    def spread(self, batch: int, context: int) -> FloatArray:
        """Return S [P, P] for steps of about this size; some hundred may be kept."""
        key = batch.bit_length(), int(context).bit_length()
        if key not in self._spreads:
            sizes = 0.75 * 2.0 ** key[0], 0.75 * 2.0 ** key[1]
            capability = self._capability
            self._spreads[key] = prior_covariance(
                *sizes, capability.max_draft_tokens, capability.ragged_penalty
            )
        return self._spreads[key]

    def _tokens_of(self, batch: int) -> FloatArray:
        """Return [B Kmax + 1] tokens that run with 0, 1, ... drafts; some hundred are kept."""
        if batch not in self._padded:
            if len(self._padded) >= 1024:
                self._padded.clear()
            most = batch * (self._capability.max_draft_tokens + 1)
            tokens = np.arange(batch, most + 1, dtype=np.float64)
            self._padded[batch] = padded(self.buckets, tokens)
        return self._padded[batch]

    def curves(self, batch: int, context: int) -> tuple[FloatArray, FloatArray]:
        """Return verify time [B Kmax + 1] and draft time [Kmax + 1], in units of `scale`."""
        c = self.coefficients
        verify = verify_times(c, self._tokens_of(batch), float(batch), float(context))
        return verify, self.passes * (c[PASSES] + c[PASS_REQUEST] * batch)

    def uniform_curves(self, batch: int, context: int) -> tuple[FloatArray, FloatArray]:
        """Return verify and draft time [Kmax + 1] of K drafts for each request, in units."""
        c = self.coefficients
        tokens = np.ascontiguousarray(self._tokens_of(batch)[::batch])
        verify = verify_times(c, tokens, float(batch), float(context))
        return verify, self.passes * (c[PASSES] + c[PASS_REQUEST] * batch)

    def rows(
        self,
        batch: int,
        tokens: FloatArray,
        context: int,
        passes: FloatArray,
        *,
        prefill: int = 0,
    ) -> FloatArray:
        """Return the features [A, P] of steps with these tokens [A] and passes [A]."""
        x = np.empty((len(tokens), SIZE))
        sizes = float(batch), np.asarray(tokens, dtype=np.float64), float(context)
        fill_rows(x, self.buckets, *sizes, np.asarray(passes, dtype=np.float64), float(prefill))
        return x

    def untimed(self, batch: int) -> FloatArray:
        """Return [Kmax + 1] 1 for each K that was not timed at this load, else 0.

        K drafts count as timed once K / 2 to 2 K were.
        """
        kmax = self._capability.max_draft_tokens
        steps = self._timed.get(batch.bit_length(), np.zeros(kmax + 1))
        timed = [steps[k // 2 + (k == 1) : 2 * k + 1].any() for k in range(kmax + 1)]
        return 1.0 - np.array(timed, dtype=np.float64)

    def timed(self, batch: int) -> float:
        """Return the steps that were timed at this load, within factors of two."""
        timed = self._timed.get(batch.bit_length())
        return 0.0 if timed is None else float(timed.sum())

    @property
    def jumped(self) -> bool:
        """Return whether all step times have jumped within the last `SETTLING` steps."""
        return self.steps - self._level_jumped < SETTLING

    def learn(self, outcome: StepOutcome, *, cold: bool, tried: int | None = None) -> None:
        """Learn from a timed step.

        Args:
            outcome: of the step.
            cold: the drafter made no pass.
            tried: K whose trial the step was; some requests may have had fewer drafts.
        """
        seconds = outcome.seconds
        if not 1e-6 < seconds < 60.0 or outcome.batch_size == 0:
            return
        passes = 0.0 if cold else float(self.passes[outcome.draft_depth])
        [x] = self.rows(
            outcome.batch_size,
            np.array([float(outcome.batch_tokens)]),
            outcome.context_tokens,
            np.array([passes]),
            prefill=outcome.prefill_tokens,
        )
        spread = self.spread(outcome.batch_size, outcome.context_tokens)
        prompts = outcome.prefill_tokens > outcome.batch_tokens
        if not self._first or (self._first_was_prompts and not prompts):
            self._begin(seconds, x, spread, prompts=prompts)
        t = seconds / self.scale
        c = self.coefficients
        if outcome.ragged:
            x[RAGGED] = float(x @ c) - passes * c[PASSES]
        expected = max(float(x @ c), 1e-3)
        prompt_time = float(c[PREFILL]) * outcome.prefill_tokens
        plain = max(expected - prompt_time, 1e-3)
        self.covariance += DRIFT * plain**2 * spread
        self._level_variance = min(self._level_variance + self._level_drift, 1.0)
        off = t - expected
        error = self.noise * expected**2 + (PROMPT_ERROR * prompt_time) ** 2
        known = float(x @ self.covariance @ x) + self._level_variance * expected**2
        self.steps += 1
        known = self._take_surprise(off, expected, max(plain, t), known, error, spread, x)
        if not outcome.prefill_tokens:
            self._learn_noise(off, expected, known, error)
        load = self._timed.setdefault(outcome.batch_size.bit_length(), np.zeros(len(self.passes)))
        k = round(outcome.batch_tokens / outcome.batch_size) - 1
        if tried is not None and tried <= 2 * k:  # else few had the drafts to time it
            k = tried
        load[min(max(k, 0), len(load) - 1)] += 1.0
        by_level = self._level_variance * expected**2
        odd = (ODD * off) ** 2
        gain = by_level / (known + error + odd)
        self.level *= 1.0 + gain * min(max(off / expected, -0.8), 2.0)
        self._level_variance *= 1.0 - gain
        condition(self.mean, self.covariance, x, t, error + by_level + odd)
        if self._kept < SETTLING:
            self._learn_again(x, seconds, ragged=outcome.ragged)
        self.coefficients = likeliest_nonnegative(self.mean, self.covariance)

    def _learn_again(self, x: FloatArray, seconds: float, *, ragged: bool) -> None:
        """Learn the first steps anew with the noise that makes them likeliest, now and then.

        A step that is believed surer than it was would mislead for long.
        """
        n = self._kept = self._kept + 1
        self._rows[n - 1], self._seconds[n - 1], self._ragged[n - 1] = x, seconds, ragged
        if n not in (4, 8, 16, SETTLING):
            return
        best = -math.inf
        for noise in NOISES:
            mean, covariance = self._guess.copy(), self._prior.copy()
            score = learn_again(
                mean,
                covariance,
                self._rows[:n],
                self._seconds[:n] / self._first,
                self._ragged[:n],
                noise,
            )
            if score > best:
                best, self.mean, self.covariance, self.noise = score, mean, covariance, noise**2
        self.level, self._level_variance = 1.0, 0.0

    def _begin(self, seconds: float, x: FloatArray, spread: FloatArray, *, prompts: bool) -> None:
        self.mean, self.coefficients = self._guess.copy(), self._guess
        self._first, self._first_was_prompts = seconds / float(x @ self.mean) / self.level, prompts
        self.covariance, self._prior = spread.copy(), spread

    def _take_surprise(
        self,
        off: float,
        expected: float,
        size: float,
        known: float,
        error: float,
        spread: FloatArray,
        x: FloatArray,
    ) -> float:
        """Follow how odd the steps are, and widen the level, then the parts, at a jump.

        Successive surprises that are alike say that all step times wander together, and how fast
        (Mehra 1970): the drift of the level rises until they are not.

        Returns the variance of the expected time, after a jump the wider one.
        """
        z = min(max(off / math.sqrt(known + error), -3.0), 3.0)
        self._surprise += 0.3 * (z - self._surprise)
        self._alike += 0.05 * (z * self._last_surprise - self._alike)
        self._last_surprise = z
        faster = 0.1 * max(min(self._alike - 0.1, 1.0), -0.3)
        drift = self._level_drift * math.exp(faster)
        self._level_drift = min(max(drift, LEAST_DRIFT), MOST_DRIFT)
        if abs(self._surprise) <= SURPRISED or self.steps <= SETTLING:
            return known
        doubt = 1.0
        if self.steps - self._level_jumped > SETTLING:
            self._level_variance += (off / expected) ** 2 + JUMP
            self._level_jumped = self.steps
            doubt = BESIDE_LEVEL
        self.covariance += doubt * size**2 * spread
        self._surprise = 0.0
        return float(x @ self.covariance @ x) + self._level_variance * expected**2

    def _learn_noise(self, off: float, expected: float, known: float, error: float) -> None:
        """Move the noise towards this error; while the belief is wide, an error tells little."""
        share = (error / (error + known)) ** 2
        more = (min(off**2, 9.0 * (known + error)) - known - error) / expected**2
        rate = max(0.02, 1.0 / (4 + self.steps)) * max(share, 0.25)
        self.noise = min(max(self.noise + rate * more, LEAST_NOISE**2), MOST_NOISE)

    def prompt_error(self, prompts: float) -> float:
        """Return the standard deviation (units) of the time of so many prompt tokens in a step."""
        return PROMPT_ERROR * float(self.coefficients[PREFILL]) * prompts

    def prompt_seconds(self, tokens: float) -> float:
        """Return the seconds of prompt tokens in a step."""
        return self.scale * float(self.coefficients[PREFILL]) * tokens

    def seconds(self, batch: int, tokens: int, context: int, passes: float) -> float:
        """Return the expected seconds of a step without prompts."""
        [x] = self.rows(batch, np.array([float(tokens)]), context, np.array([passes]))
        return self.scale * max(float(x @ self.coefficients), 1e-3)

    def saved(self) -> SavedStepTimes | None:
        """Return what was learned; None before the first step."""
        if not self._first:
            return None
        parts = saved_gaussian(self.mean, self.covariance, self._guess, self._prior)
        return SavedStepTimes(parts, self.scale, self.noise, self.steps)

    def restore(self, saved: SavedStepTimes) -> None:
        """Adopt what was saved. Raises PolicyError if it does not fit."""
        self.mean, self.covariance = saved.parts.checked(SIZE)
        self._guess = np.array(saved.parts.prior_mean)
        self._prior = np.array(saved.parts.prior_covariance)
        self.coefficients = likeliest_nonnegative(self.mean, self.covariance)
        self._first, self.level, self._first_was_prompts = saved.unit, 1.0, False
        self.noise, self.steps, self._kept = saved.noise, saved.steps, SETTLING
        # Clocks and tenants may be others than they were.
        self._level_variance = JUMP
