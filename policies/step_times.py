"""Belief 2: how long a step takes.

A step of B requests, N verified tokens and D passes of the drafter takes

    T = T0 L x'c,    c >= 0,

with the features x and the prior c ~ N(mean, P) of `step_features`. T0 is the first step. L is one
common level of all step times, which other tenants or a clock move. A jump widens the level and the
parts; one that follows another is of the level, beside which the parts widen little, and then of
the parts, if residuals stay odd.

The first steps are learned again, once there are more, with the noise that makes them likeliest.

Odd steps count little: the variance of an observation grows by (0.3 x its error)^2, which weighs as
a Cauchy distribution does.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np

from adaptive_spec.policies.gaussian import (
    SavedGaussian,
    condition,
    dot,
    likeliest_nonnegative,
    saved_gaussian,
    variance_of,
)
from adaptive_spec.policies.kernels import Kernel, Matrix, Rows, Vector
from adaptive_spec.policies.step_features import (
    PASSES,
    PREFILL,
    RAGGED,
    SIZE,
    fill_rows,
    padded,
    prior_covariance,
    roofline,
    step_curves,
    step_features,
    tokens_with,
)
from adaptive_spec.step import Capability, FloatArray, IntArray, StepOutcome

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
NOISES = [LEAST_NOISE * 2.0**n for n in range(9)]
"""Relative noise that the first steps are learned with, to find which fits them."""
BESIDE_LEVEL = 0.03
"""Share of the prior variance that parts gain as the level jumps: one may have changed alone."""
REMEMBERED = 2048.0
"""Steps for which a jump of the level makes it likelier that the next one is of the level, too, and
over which the variance that jumps add to the parts is averaged."""
FIRST_DRIFT, MOST_DRIFT = 1e-7, 1e-2
"""Variance that the level gains in a step, which is learned: at first, and at most."""
LEAST_DRIFT = FIRST_DRIFT / 10.0
"""Such variance at least."""


LEVEL, LEVEL_VARIANCE, LEVEL_DRIFT, NOISE = range(4)
SURPRISE, LAST_SURPRISE, ALIKE, LEVEL_JUMPED, JUMPS, DOUBT, GAINED = range(4, 11)
_MOVING = GAINED + 1
"""Numbers of `learn_step` that move with each step."""


@Kernel
def untimed_of(timed: Vector) -> Vector:
    """Return [Kmax + 1] 1 for each K without a timed step of K / 2 to 2 K, else 0."""
    found = np.ones(len(timed))
    for k in range(len(timed)):
        for near in range(k // 2 + (1 if k == 1 else 0), min(2 * k + 1, len(timed))):
            if timed[near] > 0.0:
                found[k] = 0.0
    return found


@Kernel
def shortest_times(
    c: Vector,
    covariance: Matrix,
    buckets: Vector,
    nodes: Vector,
    passes: Vector,
    batch: float,
    context: float,
) -> Vector:
    """Return [Kmax + 1]; see `StepTimes.shortest`."""
    x, found, run = np.empty((len(passes), SIZE)), np.empty(len(passes)), passes.copy()
    run[0] = 0.0
    tokens = tokens_with(nodes, batch, batch * np.arange(len(passes)).astype(np.float64))
    fill_rows(x, buckets, batch, tokens, context, run, 0.0)
    for k in range(len(passes) - 1, -1, -1):
        found[k] = dot(x[k], c)
        for p in range(SIZE):
            x[k, p] -= x[0, p]
        found[k] -= math.sqrt(max(variance_of(covariance, x[k]), 0.0))
    for k in range(len(passes)):
        found[k] = max(found[k], found[0], 1e-3)
    return found


@Kernel
def widen(covariance: Matrix, spread: Matrix, share: float) -> None:
    """Add a share of the spread [P, P] to a covariance [P, P], in place."""
    for p in range(len(spread)):
        for q in range(len(spread)):
            covariance[p, q] += share * spread[p, q]


@Kernel
def expect(x: Vector, c: Vector, ragged: bool) -> float:
    """Return the units that a step x [P] takes with c [P]; its ragged part is overwritten."""
    x[RAGGED] = 0.0
    expected = dot(x, c)
    if ragged:
        x[RAGGED] = expected - x[PASSES] * c[PASSES]
        expected += x[RAGGED] * c[RAGGED]
    return max(expected, 1e-3)


@Kernel
def jumps(moving: Vector, z: float, steps: int) -> bool:
    """Follow the surprises z (standard deviations), and tell whether step times have jumped.

    Successive surprises that are alike say that all step times wander together, and how fast
    (Mehra 1970): the drift of the level rises until they are not.
    """
    z = min(max(z, -3.0), 3.0)
    moving[JUMPS] *= 1.0 - 1.0 / REMEMBERED
    moving[SURPRISE] += 0.3 * (z - moving[SURPRISE])
    moving[ALIKE] += 0.05 * (z * moving[LAST_SURPRISE] - moving[ALIKE])
    moving[LAST_SURPRISE] = z
    faster = 0.1 * max(min(moving[ALIKE] - 0.1, 1.0), -0.3)
    drift = moving[LEVEL_DRIFT] * math.exp(faster)
    moving[LEVEL_DRIFT] = min(max(drift, LEAST_DRIFT), MOST_DRIFT)
    jumped = abs(moving[SURPRISE]) > SURPRISED and steps > SETTLING
    if jumped:
        moving[SURPRISE] = 0.0
    return jumped


@Kernel
def learn_again(
    mean: Vector,
    covariance: Matrix,
    rows: Matrix,
    seconds: Vector,
    ragged: Rows,
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
        expected = expect(x, c, ragged[n])
        off = seconds[n] - expected
        error = (noise * expected) ** 2 + (PROMPT_ERROR * c[PREFILL] * x[PREFILL]) ** 2
        known = error + variance_of(covariance, x)
        score -= 0.5 * (math.log(known) + min(off * off / known, 9.0))
        condition(mean, covariance, x, seconds[n], error + (ODD * off) ** 2)
    return score


@Kernel
def learn_step(
    mean: Vector,
    covariance: Matrix,
    c: Vector,
    moving: Vector,
    spread: Matrix,
    x: Vector,
    t: float,
    steps: int,
    ragged: bool,
) -> Vector:
    """Learn a step: the level and its drift, the noise, then the parts. In place.

    Args:
        mean: [P]
        covariance: [P, P]
        c: [P] the likeliest coefficients before.
        moving: [11] level, its variance, its drift, noise, what is known of surprises, and the
            share of the spread that the parts have gained by a jump in this step and in the mean.
        spread: [P, P] of what c may be off by.
        x: [P] features, the ragged part overwritten.
        t: what the step took (units).
        steps: timed so far, with this one.
        ragged: K differed between the requests.

    Returns the likeliest coefficients [P].
    """
    expected = expect(x, c, ragged)
    prompt_time = c[PREFILL] * x[PREFILL]
    plain = max(expected - prompt_time, 1e-3)
    widen(covariance, spread, DRIFT * plain * plain)
    moving[LEVEL_VARIANCE] = min(moving[LEVEL_VARIANCE] + moving[LEVEL_DRIFT], 1.0)
    off = t - expected
    error = moving[NOISE] * expected**2 + (PROMPT_ERROR * prompt_time) ** 2
    known = variance_of(covariance, x) + moving[LEVEL_VARIANCE] * expected**2
    moving[DOUBT] = 0.0
    if jumps(moving, off / math.sqrt(known + error), steps):
        # A jump is first one of the level, beside which a part may have changed alone.
        doubt = 1.0
        far = abs(off) / expected
        if steps - moving[LEVEL_JUMPED] > SETTLING:
            moving[LEVEL_VARIANCE] += far * far + JUMP
            doubt = BESIDE_LEVEL ** moving[JUMPS]
            moving[LEVEL_JUMPED], moving[JUMPS] = steps, 1.0
        moving[DOUBT] = doubt
        size = max(plain, t)
        widen(covariance, spread, doubt * size * size)
        # A part that is far from its prior may have moved as far as the step did.
        for p in range(len(c)):
            covariance[p, p] += doubt * (min(far, 1.0) * c[p]) ** 2
        known = variance_of(covariance, x) + moving[LEVEL_VARIANCE] * expected**2
    moving[GAINED] += (moving[DOUBT] - moving[GAINED]) / REMEMBERED
    if x[PREFILL] == 0.0:
        # While the belief is wide, an error tells little of the noise.
        rate = max(0.02, 1.0 / (4 + steps)) * (error / (error + known)) ** 2
        more = (min(off * off, 9.0 * (known + error)) - known - error) / expected**2
        moving[NOISE] = min(max(moving[NOISE] + rate * more, LEAST_NOISE**2), MOST_NOISE)
    by_level, odd = moving[LEVEL_VARIANCE] * expected**2, (ODD * off) ** 2
    gain = by_level / (known + error + odd)
    moving[LEVEL] *= 1.0 + gain * min(max(off / expected, -0.8), 2.0)
    moving[LEVEL_VARIANCE] *= 1.0 - gain
    condition(mean, covariance, x, t, error + by_level + odd)
    return likeliest_nonnegative(mean, covariance)


_Count = Annotated[float, msgspec.Meta(ge=0.0, le=1e15)]


class SavedStepTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Belief about step times as JSON.

    Attributes:
        parts: belief about c, in units.
        unit: T0 L, seconds.
        noise: variance of a step's time, relative.
        steps: timed.
        timed: by load, bits of B -> [Kmax + 1] steps timed with about K drafts a request.
    """

    parts: SavedGaussian
    unit: Annotated[float, msgspec.Meta(ge=1e-12, le=60.0)]
    noise: Annotated[float, msgspec.Meta(ge=LEAST_NOISE**2, le=MOST_NOISE)]
    steps: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    timed: dict[Annotated[str, msgspec.Meta(pattern="^1?[0-9]$")], list[_Count]] = {}


class StepTimes:
    """Belief about the step times of one engine.

    Attributes:
        mean, covariance: [P], [P, P] of c, in units of T0 L.
        coefficients: [P] the likeliest c >= 0.
        buckets: [n] captured sizes.
        nodes: [Kmax + 1] tokens of one request at each K, where drafts are trees; else empty.
        steps: timed so far.
    """

    def __init__(self, capability: Capability) -> None:
        self._capability = capability
        kmax = capability.max_draft_tokens
        self._guess = roofline()
        self._guess[RAGGED] = capability.ragged_penalty
        if not capability.off_pass:  # drafts are looked up, or cost what they cost at any K
            self._guess[PASSES] = 0.0
        self._spreads: dict[tuple[int, int], FloatArray] = {}
        self._padded: dict[int, FloatArray] = {}
        self.buckets = np.array(capability.token_buckets, dtype=np.float64)
        self.passes: FloatArray = np.arange(kmax + 1, dtype=np.float64)
        self.nodes: FloatArray = np.empty(0)
        if nodes := capability.tree_nodes:
            ks = capability.uniform_values
            self.nodes = np.interp(self.passes, (0, *ks), (1, *nodes))
        if capability.off_pass:
            self.passes[0] = 1.0 if capability.steers_depth else kmax
        self._nothing_timed: FloatArray = np.zeros(kmax + 1)
        self.mean, self.coefficients = self._guess.copy(), self._guess
        self._prior = self.spread(16, 4096)
        self.covariance = self._prior.copy()
        self._first = 0.0
        self._first_was_prompts = False
        self._moving: FloatArray = np.zeros(_MOVING)
        self._moving[[LEVEL, LEVEL_DRIFT, NOISE]] = 1.0, FIRST_DRIFT, FIRST_NOISE**2
        self._moving[LEVEL_JUMPED] = -SETTLING
        self.steps = 0
        self._firsts: list[tuple[FloatArray, float, bool]] | None = []
        """Features, seconds and raggedness of the first steps; None once they are learned."""
        self._timed: dict[int, FloatArray] = {}
        """By load, within factors of two: [Kmax + 1] steps timed with about K drafts a request; a
        jump takes the share that it makes doubtful."""

    @property
    def level(self) -> float:
        """L."""
        return float(self._moving[LEVEL])

    @property
    def noise(self) -> float:
        """Variance of a step's time, relative."""
        return float(self._moving[NOISE])

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

    def drift(self, batch: int, context: int) -> FloatArray:
        """Return the variance [P, P] that parts gain in a step of this size, by jumps as well."""
        gained: FloatArray = (DRIFT + self._moving[GAINED]) * self.spread(batch, context)
        return gained

    def _tokens_of(self, batch: int) -> FloatArray:
        """Return [B Kmax + 1] tokens that run with 0, 1, ... drafts; some hundred are kept."""
        if batch not in self._padded:
            if len(self._padded) >= 1024:
                self._padded.clear()
            drafts = np.arange(batch * self._capability.max_draft_tokens + 1)
            self._padded[batch] = padded(self.buckets, self.tokens(batch, drafts))
        return self._padded[batch]

    def tokens(self, batch: int, drafts: IntArray) -> FloatArray:
        """Return the tokens [n] that B requests verify with so many drafts [n] in all."""
        return tokens_with(self.nodes, batch, drafts.astype(np.float64))

    def curves(
        self, batch: int, context: int, *, scale: float = 1.0, besides: float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """Return verify time [B Kmax + 1] and draft time [Kmax + 1] of every plan.

        Args:
            batch: B.
            context: tokens.
            scale: seconds of a unit.
            besides: seconds that every step takes besides.
        """
        tokens = self._tokens_of(batch)
        return step_curves(self.coefficients, tokens, self.passes, batch, context, scale, besides)

    def shortest(self, batch: int, context: int) -> FloatArray:
        """Return time [Kmax + 1] of K drafts for each request, as short as one may hope (units).

        That is a standard deviation below its mean, beside a step without drafts or a drafter.
        """
        return shortest_times(
            self.coefficients,
            self.covariance,
            self.buckets,
            self.nodes,
            self.passes,
            batch,
            context,
        )

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

    def steps_at(self, batch: int) -> FloatArray:
        """Return [Kmax + 1] steps timed with about K drafts at this load, less doubtful ones."""
        return self._timed.get(batch.bit_length(), self._nothing_timed)

    def untimed(self, batch: int) -> FloatArray:
        """Return [Kmax + 1] 1 for each K that was not timed at this load, else 0.

        K drafts count as timed once K / 2 to 2 K were.
        """
        return untimed_of(self.steps_at(batch))

    def timed(self, batch: int) -> float:
        """Return the steps that were timed at this load, within factors of two."""
        return float(self.steps_at(batch).sum())

    @property
    def jumped(self) -> bool:
        """Return whether all step times have jumped within the last `SETTLING` steps."""
        return bool(self.steps - self._moving[LEVEL_JUMPED] < SETTLING)

    @property
    def surprised(self) -> bool:
        """Return whether the last step took a time that was not expected."""
        return bool(abs(self._moving[LAST_SURPRISE]) > SURPRISED)

    def learn(self, outcome: StepOutcome, *, cold: bool, tried: int | None = None) -> None:
        """Learn from a timed step.

        Args:
            outcome: of the step.
            cold: the drafter made no pass.
            tried: K whose trial the step was; some requests may have had fewer drafts.
        """
        seconds, batch = outcome.seconds, outcome.batch_size
        if not 1e-6 < seconds < 60.0 or batch == 0:
            return
        passes = 0.0 if cold else float(self.passes[outcome.draft_depth])
        x = step_features(
            self.buckets,
            batch,
            float(outcome.batch_tokens),
            outcome.context_tokens,
            passes,
            outcome.prefill_tokens,
        )
        spread = self.spread(batch, outcome.context_tokens)
        prompts = outcome.prefill_tokens > outcome.batch_tokens
        if not self._first or (self._first_was_prompts and not prompts):
            self._begin(seconds, x, spread, prompts=prompts)
        self.steps += 1
        self.coefficients = learn_step(
            self.mean,
            self.covariance,
            self.coefficients,
            self._moving,
            spread,
            x,
            seconds / self.scale,
            self.steps,
            outcome.ragged,
        )
        if doubt := float(self._moving[DOUBT]):  # what was timed may no longer hold
            for counts in self._timed.values():
                counts *= 1.0 - doubt
        load = self._timed.setdefault(batch.bit_length(), np.zeros(len(self.passes)))
        k = round(outcome.batch_tokens / batch) - 1
        if len(self.nodes):
            k = int(np.abs(self.nodes - outcome.batch_tokens / batch).argmin())
        if tried is not None and tried <= 2 * k:  # else few had the drafts to time it
            k = tried
        load[min(max(k, 0), len(load) - 1)] += 1.0
        if self._firsts is not None:
            self._firsts.append((x, seconds, outcome.ragged))
            if len(self._firsts) in (4, 8, 16, SETTLING):
                self._learn_again(self._firsts)

    def _learn_again(self, steps: list[tuple[FloatArray, float, bool]]) -> None:
        """Learn the first steps anew with the noise that makes them likeliest.

        A step that is believed surer than it was would mislead for long.
        """
        rows, seconds, ragged = map(np.array, zip(*steps, strict=True))
        best = -math.inf
        for noise in NOISES:
            mean, covariance = self._guess.copy(), self._prior.copy()
            score = learn_again(mean, covariance, rows, seconds / self._first, ragged, noise)
            if score > best:
                best, self.mean, self.covariance = score, mean, covariance
                self._moving[NOISE] = noise**2
        self._moving[[LEVEL, LEVEL_VARIANCE]] = 1.0, 0.0
        self.coefficients = likeliest_nonnegative(self.mean, self.covariance)
        self._firsts = None if len(steps) == SETTLING else self._firsts

    def _begin(self, seconds: float, x: FloatArray, spread: FloatArray, *, prompts: bool) -> None:
        self.mean, self.coefficients = self._guess.copy(), self._guess
        self._first, self._first_was_prompts = seconds / float(x @ self.mean) / self.level, prompts
        self.covariance, self._prior = spread.copy(), spread

    def prompt_error(self, prompts: float) -> float:
        """Return the standard deviation (units) of the time of so many prompt tokens in a step."""
        return PROMPT_ERROR * float(self.coefficients[PREFILL]) * prompts

    def prompt_seconds(self, tokens: float) -> float:
        """Return the seconds of prompt tokens in a step."""
        return self.scale * float(self.coefficients[PREFILL]) * tokens

    def seconds(self, batch: int, tokens: int, context: int, passes: float) -> float:
        """Return the expected seconds of a step without prompts."""
        x = step_features(self.buckets, batch, float(tokens), context, passes, 0.0)
        return self.scale * max(dot(x, self.coefficients), 1e-3)

    def saved(self) -> SavedStepTimes | None:
        """Return what was learned; None before the first step."""
        if not self._first:
            return None
        parts = saved_gaussian(self.mean, self.covariance, self._guess, self._prior)
        timed = {str(load): counts.tolist() for load, counts in self._timed.items()}
        return SavedStepTimes(parts, self.scale, self.noise, self.steps, timed)

    def restore(self, saved: SavedStepTimes) -> None:
        """Adopt what was saved. Raises PolicyError if it does not fit."""
        self.mean, self.covariance = saved.parts.checked(SIZE)
        self._guess, self._prior = saved.parts.prior()
        self.coefficients = likeliest_nonnegative(self.mean, self.covariance)
        self._first, self._first_was_prompts = saved.unit, False
        self.steps, self._firsts = saved.steps, None
        self._timed = {int(load): np.array(counts) for load, counts in saved.timed.items()}
        # Clocks and tenants may be others than they were.
        self._moving[[LEVEL, LEVEL_VARIANCE, NOISE]] = 1.0, JUMP, saved.noise
