"""Step times that are fitted to running steps, for baselines that measure before they serve.

    T = x'c (1 + error),  c >= least,  c ~ N(mean, P)

x are the features of a step (`features`): the step itself, the part of its verified tokens in each
segment between knots, requests, context, prompt tokens, passes, passes by request, and any draft,
alone, by request and by context. The first step sets the scale of a roofline, unless a profile is
given. In each step P grows a little; three surprising steps in a row widen it at once. The error of
an observation grows with its surprise (a Cauchy weight). The common level of all step times drifts
by as much as successive surprises are correlated (Mehra, IEEE Trans. Automatic Control 15, 1970).

Verified tokens count as the engine runs them, padded to the next captured size. Steps whose K
differ take a penalty longer, learned beside it (`RaggedPenalty`) and taken off before the fit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right

import numpy as np

from adaptive_spec.policies.cost_profile import CostProfile, extended
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.step import Capability, FloatArray, StepOutcome

_KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
_LAST = len(_KNOTS)
"""Place of the rise over the last segment, which is open."""
_REQUEST, _CONTEXT, _PREFILL, _PASS, _PASS_REQUEST, _ANY_DRAFT = range(_LAST + 1, _LAST + 7)
_SIZE = _LAST + 9
_FALLS = slice(1 + _KNOTS.index(2), 1 + _KNOTS.index(8))
"""Coefficients of the segments from 2 to 8 tokens, over which the verify time may fall."""
_MOST_FALL = 0.1
"""Most that it falls over one of these segments, as a share of a step."""
_KNEE, _OTHER_KNEES, _KNEE_SHARE = 160.0, (96.0, 256.0), 2.0
"""Tokens up to which a pass takes as long as one token's; others, and how far one may lie off."""
_PASS_SHARE = 0.3
"""Time of a drafter's pass relative to a step with five passes less."""
_SHARE, _SHARE_OF_PROFILE, _BEND = 0.3, 0.03, 0.5
"""Standard deviation of each part relative to a step, likewise from a profile; of a bend to it."""
_PART_SHARES: FloatArray = np.array([1.0, 0.3, 0.3, 1.0, 1.0, 0.3, 0.3, 0.3])
"""By coefficient from `_REQUEST` on: standard deviation relative to `_SHARE`, by size of a step."""
_DRIFT, _DRIFT_STEPS = 1e-6, 16
"""Share of a jump's variance that drifts per step; steps between additions."""
_LEAST_LEVEL, _MOST_LEVEL, _LEVEL_RATE, _LEVEL_DECAY = 1e-7, 1e-2, 0.1, 0.1
"""Relative variance of the level's drift per step: bounds, learning rate, decay."""
_NOISE, _LEAST_NOISE, _NOISE_RATE, _NOISE_STEPS = 0.03, 0.003, 0.02, 8
"""Relative standard deviation of a step: prior, least, learning rate, prior's steps."""
_DISBELIEF, _PROMPT_ERROR = 0.3, 0.15
"""Error of an observation relative to its surprise; of the time of prompts, which is not linear."""
_CLIP, _JUMP, _JUMP_RATE = 3.0, 1.9, 0.3
"""Surprises (standard deviations): clip, mean that is a jump, averaging rate."""
_ABSURD = 100.0
"""Factor between measured and expected times at a jump that no change explains."""
_SWEEPS = 12
"""Sweeps of the descent; the forces of the step before are where it starts."""
_SHORTEST, _LONGEST = 1e-6, 60.0
"""Bounds of a measured time (seconds)."""

_TOKENS: FloatArray = np.array(_KNOTS, dtype=np.float64)
_WIDTHS: FloatArray = np.diff(_TOKENS, append=2.0 * _TOKENS[-1])
_RISEN: FloatArray = np.tri(_LAST, _SIZE)
"""[segments, P]: 1 for the step itself and each segment below its tokens."""
_PARTS = np.arange(_REQUEST, _SIZE)


def features(
    batch_size: int, drafting: bool, context: int, prompts: int, tokens: float, passes: float
) -> FloatArray:
    """Return the features [P] of a step, whose product with the coefficients is its duration."""
    segment = bisect_right(_KNOTS, tokens)
    row: FloatArray = _RISEN[segment - 1].copy()
    row[segment] = (tokens - _TOKENS[segment - 1]) / _WIDTHS[segment - 1]
    row[_REQUEST : _PASS_REQUEST + 1] = batch_size, context, prompts, passes, passes * batch_size
    if drafting:
        row[_ANY_DRAFT:] = 1.0, batch_size, context
    return row


def roofline(knee: float) -> FloatArray:
    """Return the coefficients [P] of passes that take 1 up to so many tokens, and then 1 / knee."""
    heights = np.maximum(np.append(_TOKENS, _TOKENS[-1] + _WIDTHS[-1]) / knee, 1.0)
    found = np.zeros(_SIZE)
    found[0] = heights[0]
    found[1 : _LAST + 1] = np.diff(heights)
    found[_PREFILL] = 1.0 / knee  # a prompt's token is as much work as a draft
    return found


def _guess_from_scale(seconds: float, outcome: StepOutcome) -> FloatArray:
    """Return the coefficients [P] of a roofline, from the duration of a single step."""
    passes = max(outcome.draft_depth, 1)
    guess = np.zeros(_SIZE)
    guess[_PASS] = _PASS_SHARE * seconds / (passes + 5.0)
    verify = seconds - passes * guess[_PASS]
    verify /= max((outcome.batch_tokens + outcome.prefill_tokens) / _KNEE, 1.0)
    guess += verify * roofline(_KNEE)
    return guess


def _guess_from_profile(profile: CostProfile) -> FloatArray:
    """Return a profile's coefficients [P]."""
    heights = extended(profile, _TOKENS)
    guess = np.zeros(_SIZE)
    guess[0] = heights[0]
    least = np.zeros(_LAST - 1)
    least[_FALLS.start - 1 : _FALLS.stop - 1] = -_MOST_FALL * heights[0]
    guess[1:_LAST] = np.maximum(np.diff(heights), least)
    guess[_LAST] = guess[_LAST - 1] / _WIDTHS[-2] * _WIDTHS[-1]
    guess[_REQUEST:] = (
        profile.per_request,
        profile.per_context_token,
        profile.per_prefill_token,
        profile.draft_pass,
        profile.draft_pass_per_request,
        profile.any_draft,
        profile.any_draft_per_request,
        profile.any_draft_per_context_token,
    )
    return guess


def _constant_spread() -> tuple[FloatArray, FloatArray]:
    """Parts of S [P, P]: of the step and the place of the knee; of the slope, by tokens ** -2."""
    slope = np.zeros((_LAST, _SIZE))
    slope[:, 1 : _LAST + 1] = np.triu(np.broadcast_to(_WIDTHS, (_LAST, _LAST)))
    # Past the knee a draft and a prompt token are the same work.
    slope[: _KNOTS.index(192), _PREFILL] = 1.0
    slope[1:] *= _BEND
    fixed = np.zeros((1, _SIZE))
    fixed[0, 0] = 1.0
    knees = np.stack([roofline(knee) - roofline(_KNEE) for knee in _OTHER_KNEES])
    step = np.concatenate((fixed, _KNEE_SHARE * knees))
    return step.T @ step, slope.T @ slope


_OF_STEP, _OF_SLOPE = _constant_spread()


def _spread(batch: float, context: float, passes: float, seconds: float) -> FloatArray:
    """Return S [P, P]: what may be wrong with the coefficients, by a step that takes so long."""
    tokens, context = min(batch * (1.0 + passes), _KNEE), max(context, 1.0)
    spread: FloatArray = _OF_STEP + _OF_SLOPE / tokens**2
    sizes = batch, context, tokens, passes, passes * batch, 1.0, batch, context
    spread[_PARTS, _PARTS] += (_PART_SHARES / sizes) ** 2
    spread *= seconds**2
    return spread


def _swept(block: FloatArray, push: FloatArray, lacking: FloatArray, most: int) -> FloatArray:
    """Return forces [sweeps, H] on the bounds that hold, after each sweep until nothing moves.

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


class RaggedPenalty:
    """Extra verify time of steps whose K differ, over that of steps of equal K at like loads.

    Attributes:
        value: p >= 0, rounded to half a percent.

    Args:
        prior: p before anything is measured; 0: the engine has no such penalty, and p stays 0.
    """

    _MEMORY, _PRIOR_STEPS, _GRID = 64, 16, 200.0

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._loads: dict[tuple[int, int], tuple[list[float], list[int]]] = {}
        """Means and counts by kind of step, for each load."""
        self.value = max(prior, 0.0)

    def add_step(
        self, seconds: float, expected: float, *, ragged: bool, load: tuple[int, int]
    ) -> None:
        """Learn the verify time of a step without prompts, expected at equal K."""
        residual = max(-0.5, min(seconds / expected - 1.0, 0.5))
        means, counts = self._loads.setdefault(load, ([0.0, 0.0], [0, 0]))
        counts[ragged] += 1
        means[ragged] += (residual - means[ragged]) / min(counts[ragged], self._MEMORY)
        if not counts[not ragged]:
            return
        steps, total = float(self._PRIOR_STEPS), self._PRIOR_STEPS * self._prior
        for (equal, differ), seen in self._loads.values():
            steps += min(seen)
            total += min(seen) * (differ - equal)
        self.value = max(round(total / steps * self._GRID), 0) / self._GRID


class FittedStepTimes:
    """Predicts step times. All times in seconds.

    Attributes:
        changes: times that step times have changed.

    Args:
        capability: of the engine.
        profile: to start from.
    """

    def __init__(self, capability: Capability, profile: CostProfile | None = None) -> None:
        self._capability, self._known = capability, profile is not None
        self._buckets = capability.token_buckets
        self._padded: dict[int, FloatArray] = {}
        self._ragged = RaggedPenalty(capability.ragged_penalty)
        self._passes: FloatArray = np.arange(capability.max_draft_tokens + 1, dtype=np.float64)
        if capability.off_pass:  # where the depth is fixed, as many as ever
            self._passes[0] = 1.0 if capability.steers_depth else capability.max_draft_tokens
        self._typical = 0.5 * capability.max_draft_tokens
        """Passes of the drafter in a typical step."""
        self.changes = 0
        self._clear()
        if profile is not None:
            seconds = profile.seconds[0]
            self._begin(_guess_from_profile(profile), _SHARE_OF_PROFILE, 16, 4096, seconds)

    def _clear(self) -> None:
        """Believe nothing yet."""
        self._mean, self._least, self._push = np.zeros((3, _SIZE))
        self._covariance: FloatArray = np.zeros((_SIZE, _SIZE))
        self._coefficients: FloatArray = np.zeros(_SIZE)
        """The most likely ones within their bounds."""
        self._noise, self._level = _NOISE**2, _LEAST_LEVEL
        self._surprise = self._before = 0.0
        self._steps, self._begun, self._begun_by_prompts = 0, False, False

    def _begin(
        self, guess: FloatArray, share: float, batch: int, context: int, seconds: float
    ) -> None:
        self._mean[:] = self._coefficients[:] = guess
        self._least[_FALLS] = -_MOST_FALL * guess[0]
        self._covariance[:] = share**2 * _spread(batch, context, self._typical, seconds)
        self._push[:] = 0.0
        self._begun = True

    @property
    def ready(self) -> bool:
        """Return whether a profile was given or a step measured, so that times can be predicted."""
        return self._known or self._steps > 0 or self.changes > 0

    def verify_seconds(
        self, batch_size: int, context_tokens: int, prefill_tokens: int
    ) -> FloatArray:
        """Return [B * Kmax + 1] seconds of all but drafting, by the drafts verified."""
        known, tokens = self._coefficients, self._tokens_of(batch_size)
        c: list[float] = known.tolist()
        fixed = (
            c[0]
            + c[_REQUEST] * batch_size
            + c[_CONTEXT] * context_tokens
            + c[_PREFILL] * prefill_tokens
        )
        once, by_request, by_context = c[_ANY_DRAFT:]
        heights, slopes = np.zeros(_LAST), np.full(_LAST, c[_LAST] / float(_WIDTHS[-1]))
        np.cumsum(known[1:_LAST], out=heights[1:])
        np.divide(heights[1:] - heights[:-1], _TOKENS[1:] - _TOKENS[:-1], out=slopes[:-1])
        segment = np.searchsorted(_TOKENS, tokens, side="right") - 1
        curve: FloatArray = slopes[segment] * (tokens - _TOKENS[segment]) + heights[segment]
        curve += fixed
        curve[1:] += once + by_request * batch_size + by_context * context_tokens
        return np.maximum(curve, 1e-6, out=curve)

    def draft_seconds(self, batch_size: int) -> FloatArray:
        """Return [Kmax + 1] seconds of drafting to each depth."""
        c = self._coefficients
        seconds: FloatArray = self._passes * (
            float(c[_PASS]) + float(c[_PASS_REQUEST]) * batch_size
        )
        return seconds

    def covariance(
        self, batch_size: int, context_tokens: int, drafts: list[int], depths: list[int]
    ) -> tuple[FloatArray, float]:
        """Return the covariance [A, A] of steps' logarithmic seconds, and the variance of noise.

        Args:
            batch_size: of all.
            context_tokens: of all.
            drafts: [A] verified.
            depths: [A] drafted.
        """
        rows = np.array(
            [
                features(
                    batch_size,
                    verified > 0,
                    context_tokens,
                    0,
                    self._run_as(batch_size + verified),
                    float(self._passes[depth]),
                )
                for verified, depth in zip(drafts, depths, strict=True)
            ]
        )
        seconds = np.maximum(rows @ self._coefficients, 1e-6)
        scaled = rows / seconds[:, None]
        return scaled @ self._covariance @ scaled.T, self._noise

    def learn_step_time(self, outcome: StepOutcome) -> None:
        """Learn a step's measured duration; does nothing if it is not a clean measurement."""
        seconds = outcome.seconds
        if not (_SHORTEST < seconds < _LONGEST) or outcome.batch_size == 0:
            return
        prompts = outcome.prefill_tokens > outcome.batch_tokens
        if not self._begun or (self._begun_by_prompts and not prompts):
            guess = _guess_from_scale(seconds, outcome)
            plain = max(seconds - float(guess[_PREFILL]) * outcome.prefill_tokens, 0.1 * seconds)
            self._begin(guess, _SHARE, outcome.batch_size, outcome.context_tokens, plain)
            self._begun_by_prompts = prompts
        row = self._features(outcome)
        if self._capability.ragged_penalty and outcome.batch_size > 1:
            seconds -= self._ragged_share(outcome, row, seconds)
        jumped, absurd = self._take_up(outcome, row, seconds)
        if absurd or not math.isfinite(np.add.reduce(self._coefficients)):
            self._clear()
            jumped = True
        if jumped:
            self.changes += 1

    def _take_up(self, outcome: StepOutcome, row: FloatArray, seconds: float) -> tuple[bool, bool]:
        """Learn a step's time; return whether times have jumped, and beyond all reason."""
        self._steps += 1
        batch, context = outcome.batch_size, outcome.context_tokens
        c, covariance = self._coefficients, self._covariance
        covariance += c[:, None] * (self._level * c)
        expected = max(float(row @ c), 1e-6)
        variance = float(row @ covariance @ row)
        of_prompts = float(c[_PREFILL] * row[_PREFILL])
        plain = max(expected - of_prompts, 1e-6)
        if self._steps % _DRIFT_STEPS == 0:
            spread = _spread(batch, context, self._typical, plain)
            covariance += _DRIFT * _DRIFT_STEPS * _SHARE**2 * spread
            # Rounding must not add up to a matrix that is no covariance.
            covariance[:] = 0.5 * (covariance + covariance.T)
            variance = float(row @ covariance @ row)
        error = self._noise + (_PROMPT_ERROR * min(of_prompts / expected, 1.0)) ** 2
        total = max(variance, 0.0) / (expected * expected) + error
        off = seconds / expected - 1.0
        z = min(max(off / math.sqrt(total), -_CLIP), _CLIP)
        self._surprise += _JUMP_RATE * (z - self._surprise)
        jumped = abs(self._surprise) > _JUMP
        absurd = jumped and not 1.0 / _ABSURD < seconds / expected < _ABSURD
        if jumped:
            self._surprise = 0.0
            longer = plain * max(seconds / expected, 1.0)
            covariance += _SHARE**2 * _spread(batch, context, self._typical, longer)
            covariance += c[:, None] * (off * off * c)
        elif row[_PREFILL] == 0.0:
            heard = min(max(self._before * z - _LEVEL_DECAY, -4.0), 4.0)
            level = self._level * math.exp(_LEVEL_RATE * heard)
            self._level = min(max(level, _LEAST_LEVEL), _MOST_LEVEL)
            # While the belief is wide, a surprise tells little of the noise.
            more = (min(off * off, _CLIP**2 * total) - total) * (error / total) ** 2
            rate = max(_NOISE_RATE, 1.0 / (_NOISE_STEPS + self._steps))
            self._noise = min(max(self._noise + rate * more, _LEAST_NOISE**2), 1.0)
        self._before = z
        self._condition(row, seconds, (error + (_DISBELIEF * off) ** 2) * expected * expected)
        return jumped, absurd

    def _condition(self, row: FloatArray, seconds: float, variance: float) -> None:
        """Condition the belief on an observation x'c.

        The coefficients become those of the greatest density at or above their bounds: mean + P f
        with forces f >= 0, by coordinate ascent of the dual problem. The mean itself is not
        bounded, so that a bound that has held back an observation lets go again.
        """
        mean, covariance, push = self._mean, self._covariance, self._push
        least, coefficients = self._least, self._coefficients
        side = covariance @ row
        gain = side / (max(float(row @ side), 0.0) + variance)
        mean += gain * (seconds - float(row @ mean))
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

    def _ragged_share(self, outcome: StepOutcome, row: FloatArray, seconds: float) -> float:
        """Learn the ragged penalty, and return the seconds that it added to this step."""
        drafting = float(self.draft_seconds(outcome.batch_size)[outcome.draft_depth])
        verifying = max(seconds - drafting, 0.0)
        expected = float(np.dot(self._coefficients, row)) - drafting
        if not outcome.prefill_tokens and expected > _SHORTEST:
            mean = outcome.batch_tokens / outcome.batch_size - 1.0
            load = load_bin(outcome.batch_size), round(mean)
            self._ragged.add_step(verifying, expected, ragged=outcome.ragged, load=load)
        penalty = self._ragged.value
        return penalty / (1.0 + penalty) * verifying if outcome.ragged else 0.0

    def _features(self, outcome: StepOutcome) -> FloatArray:
        return features(
            outcome.batch_size,
            outcome.batch_tokens > outcome.batch_size,
            outcome.context_tokens,
            outcome.prefill_tokens,
            self._run_as(outcome.batch_tokens),
            float(self._passes[outcome.draft_depth]),
        )

    def _run_as(self, tokens: int) -> float:
        """Return the captured size that a step with this number of tokens runs at."""
        place = bisect_left(self._buckets, tokens)
        return float(self._buckets[place] if place < len(self._buckets) else tokens)

    def _tokens_of(self, batch_size: int) -> FloatArray:
        """Return [B * Kmax + 1] captured sizes by verified drafts; some thousand are kept."""
        tokens = self._padded.get(batch_size)
        if tokens is None:
            if len(self._padded) >= 1024:
                self._padded.clear()
            most = batch_size * (self._capability.max_draft_tokens + 1)
            tokens = np.array([self._run_as(n) for n in range(batch_size, most + 1)])
            self._padded[batch_size] = tokens
        return tokens
