"""Cost model: how long a step takes, learned online, with or without a prior profile.

    T = V(N) + a B + c sum(context) + p prefill + passes(D) (d + e B) + [any draft] (f + g B)

V is piecewise linear and non-decreasing in the verified tokens N (padded to the captured size
where the engine pads); every coefficient is >= 0. The last part is what a step costs more as soon
as a single draft is verified in it: rejection sampling instead of plain sampling, and often a
slower attention path or graph for the whole batch. It makes T jump between no draft and one.

Steps are averaged, robustly, in cells of similar batch size, K and depth, whose evidence is
capped; the coefficients are a ridge fit to the cells, with a smoothness penalty that makes V
linear where nothing has been measured. So T is known for a K that this batch has never run, old
loads are not forgotten while they do not occur, and one slow step moves little. One sweep of
coordinate descent per step keeps the fit current.

A fit alone can be led astray while every step has the same K (N and D then move together), so the
model also says which K a load still lacks: `missing_depths`.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from adaptive_spec.cost_profile import CostProfile
from adaptive_spec.kernels import active_kernel
from adaptive_spec.values import Capability, FloatArray, StepOutcome

_KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
_CELL_EVIDENCE = 32
_MEDIAN_OF = 5
_SAMPLES_PER_DEPTH = 3
_CACHED_BATCHES = 1024

# Penalties, in units of one step's squared relative error.
_RIDGE = 0.02
_SMOOTHNESS = 0.3
_PROFILE_RIDGE = 4.0


class _Cell:
    """A robust running mean of steps that are alike.

    The median of the first few, then a mean that no single step moves far.
    """

    __slots__ = ("_first", "count", "features", "seconds", "spread")

    def __init__(self, features: FloatArray, seconds: float) -> None:
        self.features = features
        self.seconds = seconds
        self.spread = 0.1 * seconds
        self.count = 1
        self._first = [seconds]

    def add(self, features: FloatArray, seconds: float) -> None:
        self.count += 1
        rate = 1.0 / min(self.count, _CELL_EVIDENCE)
        self.features = self.features + rate * (features - self.features)
        if self.count <= _MEDIAN_OF:
            self._first.append(seconds)
            self._first.sort()
            # The lower middle: what disturbs a step makes it longer, never shorter.
            self.seconds = self._first[(self.count - 1) // 2]
            self.spread = max(self.seconds - self._first[0], 0.02 * self.seconds)
            return
        error = seconds - self.seconds
        bound = 3.0 * self.spread
        # A step that is far off moves the mean by at most the bound; if it was no accident, the
        # spread grows and the next ones move it further.
        self.seconds += max(rate, 0.05) * min(max(error, -bound), bound)
        limit = 6.0 * self.spread
        self.spread += 0.1 * (min(abs(error), limit) - self.spread)
        self.spread = max(self.spread, 0.005 * self.seconds)

    @property
    def weight(self) -> float:
        return min(self.count, _CELL_EVIDENCE) / (self.seconds * self.seconds)


class CostModel:
    """Predicts step times. All times in seconds."""

    def __init__(self, capability: Capability, profile: CostProfile | None = None) -> None:
        self._capability = capability
        self._knots: FloatArray = np.array(_KNOTS, dtype=np.float64)
        segments = len(_KNOTS)  # the last one is open
        self._widths: FloatArray = np.diff(self._knots, append=2.0 * self._knots[-1])
        self._last_width = float(self._widths[-1])
        self._request, self._context, self._prefill = segments + 1, segments + 2, segments + 3
        self._pass, self._pass_request = segments + 4, segments + 5
        self._any_draft, self._any_draft_request = segments + 6, segments + 7
        size = segments + 8
        self._gram: FloatArray = np.zeros((size, size))
        self._moment: FloatArray = np.zeros(size)
        self._coefficients: FloatArray = np.zeros(size)
        self._profile = profile
        self._cells: dict[tuple[int, int, int, int], _Cell] = {}
        self._coverage: dict[tuple[int, int], int] = {}
        self._tokens_of_batch: dict[int, FloatArray] = {}
        self._passes: FloatArray = np.arange(capability.max_draft_tokens + 1, dtype=np.float64)
        if capability.off_pass:
            self._passes[0] = 1.0
        self.samples = 0
        if profile is not None:
            self._start_from_profile(profile)

    @property
    def ready(self) -> bool:
        """There is something to predict from."""
        return self.samples >= 4 or self._profile is not None

    def verify_seconds(
        self, batch_size: int, context_tokens: int, prefill_tokens: int
    ) -> FloatArray:
        """Time of everything but drafting, with m = 0..B * Kmax drafts verified: [B * Kmax + 1]."""
        tokens = self._padded_tokens(batch_size)
        coefficients: list[float] = self._coefficients.tolist()  # arithmetic on floats is faster
        fixed = (
            coefficients[0]
            + coefficients[self._request] * batch_size
            + coefficients[self._context] * context_tokens
            + coefficients[self._prefill] * prefill_tokens
        )
        any_draft = (
            coefficients[self._any_draft] + coefficients[self._any_draft_request] * batch_size
        )
        return active_kernel().step_curve(
            tokens,
            self._knots,
            self._heights(),
            coefficients[self._request - 1] / self._last_width,
            fixed,
            any_draft,
        )

    def draft_seconds(self, batch_size: int) -> FloatArray:
        """Time of drafting to each depth: [Kmax + 1]."""
        per_pass = (
            self._coefficients[self._pass] + self._coefficients[self._pass_request] * batch_size
        )
        seconds: FloatArray = self._passes * per_pass
        return seconds

    def prefill_seconds(self, prefill_tokens: int) -> float:
        """Time that prompt tokens add to a step."""
        return float(self._coefficients[self._prefill]) * prefill_tokens

    def predict(self, outcome: StepOutcome) -> float:
        """Predicted duration of a step that has run."""
        if not self.ready:
            return math.nan
        return float(np.dot(self._coefficients, self._features(outcome)))

    def learn(self, outcome: StepOutcome, *, cold: bool = False) -> None:
        """Take up a step's measured duration; does nothing if it is not a clean measurement.

        `cold`: the drafter's pass was left out (OFF_COLD).
        """
        seconds = outcome.seconds
        if not (0.0 < seconds < 60.0) or outcome.batch_size == 0:
            return
        if not self.samples and self._profile is None:
            self._start_from_scale(seconds, outcome)
        self.samples += 1
        features = self._features(outcome, cold=cold)
        depth = round(outcome.batch_tokens / outcome.batch_size) - 1
        load = load_bin(outcome.batch_size)
        if outcome.prefill_tokens <= outcome.batch_tokens and (
            depth or outcome.batch_tokens == outcome.batch_size
        ):
            self._coverage[load, depth] = self._coverage.get((load, depth), 0) + 1
        # Steps with a draft and without one are never alike, though both may be K = 0 on average.
        kind = depth if outcome.batch_tokens > outcome.batch_size else -1
        passes = -1 if cold else outcome.draft_depth
        key = (load, kind, passes, outcome.prefill_tokens.bit_length())
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell(features, seconds)
        else:
            self._add(cell, -1.0)
            cell.add(features, seconds)
        self._add(cell, 1.0)
        active_kernel().descend(self._gram, self._moment, self._coefficients)

    def missing_depths(self, batch_size: int) -> list[int]:
        """The K that steps of this load have not been measured with often enough, ascending."""
        load = load_bin(batch_size)
        wanted = _SAMPLES_PER_DEPTH if self._profile is None else 1
        return [
            k
            for k in exploration_ladder(self._capability)
            if self._coverage.get((load, k), 0) < wanted
        ]

    def profile(self) -> CostProfile | None:
        """What has been learned, as a profile; None before the first step."""
        if not self.ready:
            return None
        return CostProfile(
            name="learned",
            source="online",
            tokens=[int(knot) for knot in self._knots],
            seconds=[max(float(self._coefficients[0] + h), 1e-6) for h in self._heights()],
            per_request=float(self._coefficients[self._request]),
            per_context_token=float(self._coefficients[self._context]),
            per_prefill_token=float(self._coefficients[self._prefill]),
            draft_pass=float(self._coefficients[self._pass]),
            draft_pass_per_request=float(self._coefficients[self._pass_request]),
            any_draft=float(self._coefficients[self._any_draft]),
            any_draft_per_request=float(self._coefficients[self._any_draft_request]),
        )

    def _heights(self) -> FloatArray:
        """V at the knots, above V at the first."""
        heights = np.zeros(len(_KNOTS))
        np.cumsum(self._coefficients[1 : self._request - 1], out=heights[1:])
        return heights

    def _features(self, outcome: StepOutcome, *, cold: bool = False) -> FloatArray:
        features = np.zeros(len(self._coefficients))
        features[0] = 1.0
        tokens = self._pad(outcome.batch_tokens)
        segment = min(bisect_right(_KNOTS, tokens), len(_KNOTS)) - 1
        features[1 : 1 + segment] = 1.0
        features[1 + segment] = (tokens - _KNOTS[segment]) / self._widths[segment]
        passes = 0.0 if cold else float(self._passes[outcome.draft_depth])
        features[self._request] = outcome.batch_size
        features[self._context] = outcome.context_tokens
        features[self._prefill] = outcome.prefill_tokens
        features[self._pass] = passes
        features[self._pass_request] = passes * outcome.batch_size
        if outcome.batch_tokens > outcome.batch_size:
            features[self._any_draft] = 1.0
            features[self._any_draft_request] = outcome.batch_size
        return features

    def _add(self, cell: _Cell, sign: float) -> None:
        active_kernel().absorb(
            self._gram, self._moment, cell.features, cell.seconds, sign * cell.weight
        )

    def _start_from_scale(self, seconds: float, outcome: StepOutcome) -> None:
        """No profile: the first step sets the scale of weak guesses."""
        passes = max(outcome.draft_depth, 1)
        guess = np.zeros_like(self._coefficients)
        guess[self._pass] = 0.3 * seconds / (passes + 5.0)
        guess[0] = seconds - passes * guess[self._pass]
        scale = 1.0 / seconds**2
        strength = np.full(len(guess), _RIDGE)
        # In units of a typical step, so that no coefficient is held by its own unit.
        strength[self._request] *= outcome.batch_size**2
        strength[self._context] *= max(outcome.context_tokens, 1) ** 2
        strength[self._prefill] *= 256.0**2
        strength[self._pass_request] *= outcome.batch_size**2
        strength[self._any_draft_request] *= outcome.batch_size**2
        self._set_prior(guess, scale * strength, scale)

    def _start_from_profile(self, profile: CostProfile) -> None:
        heights = _extend(profile, self._knots)
        guess = np.zeros_like(self._coefficients)
        guess[0] = heights[0]
        last = self._request - 1
        guess[1:last] = np.maximum(np.diff(heights), 0.0)
        guess[last] = guess[last - 1] / self._widths[-2] * self._widths[-1]
        guess[self._request] = profile.per_request
        guess[self._context] = profile.per_context_token
        guess[self._prefill] = profile.per_prefill_token
        guess[self._pass] = profile.draft_pass
        guess[self._pass_request] = profile.draft_pass_per_request
        guess[self._any_draft] = profile.any_draft
        guess[self._any_draft_request] = profile.any_draft_per_request
        strength = np.full(len(guess), _PROFILE_RIDGE)
        strength[self._request] *= 16.0**2
        strength[self._context] *= 4096.0**2
        strength[self._prefill] *= 256.0**2
        strength[self._pass_request] *= 16.0**2
        strength[self._any_draft_request] *= 16.0**2
        scale = 1.0 / max(heights[0], 1e-6) ** 2
        self._set_prior(guess, scale * strength, 0.0)

    def _set_prior(self, guess: FloatArray, strength: FloatArray, smoothness: float) -> None:
        self._coefficients = guess.copy()
        self._gram[:] = np.diag(strength)
        self._moment[:] = strength * guess
        # Slopes of neighbouring segments should be alike: (rise_k / w_k - rise_k+1 / w_k+1)^2.
        for k in range(len(self._knots) - 1):
            width = math.sqrt(self._widths[k] * self._widths[k + 1])
            row = np.zeros(len(guess))
            row[1 + k], row[2 + k] = width / self._widths[k], -width / self._widths[k + 1]
            self._gram += (smoothness * _SMOOTHNESS) * row[:, None] * row

    def _padded_tokens(self, batch_size: int) -> FloatArray:
        tokens = self._tokens_of_batch.get(batch_size)
        if tokens is None:
            if len(self._tokens_of_batch) >= _CACHED_BATCHES:
                self._tokens_of_batch.clear()
            count = batch_size * (self._capability.max_draft_tokens + 1)
            tokens = np.arange(batch_size, count + 1, dtype=np.float64)
            buckets = np.array(self._capability.token_buckets, dtype=np.float64)
            if buckets.size:
                place = np.searchsorted(buckets, tokens)
                inside = place < buckets.size
                tokens[inside] = buckets[place[inside]]
            self._tokens_of_batch[batch_size] = tokens
        return tokens

    def _pad(self, tokens: int) -> float:
        return float(next((b for b in self._capability.token_buckets if b >= tokens), tokens))


def load_bin(batch_size: int) -> int:
    """Loads within a factor of two count as alike: 1, 2, 3-4, 5-8, ..."""
    return (batch_size - 1).bit_length()


def exploration_ladder(capability: Capability) -> list[int]:
    """The K worth measuring for every load: nothing, one, the middle and all."""
    kmax = capability.max_draft_tokens
    wanted = {0, 1, (kmax + 1) // 2, kmax}
    return [k for k in capability.uniform_values if k in wanted or capability.ladder]


def _extend(profile: CostProfile, tokens: FloatArray) -> FloatArray:
    """The profile's verify time at these tokens, linear past its ends."""
    x = np.array(profile.tokens, dtype=np.float64)
    y = np.array(profile.seconds, dtype=np.float64)
    result: FloatArray = np.interp(tokens, x, y)
    slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
    result += slope * np.maximum(tokens - x[-1], 0.0)
    return result
