"""Cost model: how long a step takes, learned online, with or without a prior profile.

    T = V(N) + a B + c sum(context) + p prefill + passes(D) (d + e B) + [any draft] (f + g B)

V is piecewise linear in the verified tokens N (padded to the captured size where the engine pads)
and falls nowhere, but from 2 to 8 tokens, where kernels are chosen by their number and four may be
faster than three; every other coefficient is >= 0. The last part is what a step costs more as soon
as a single draft is verified in it: rejection sampling instead of plain sampling, and often a
slower attention path or graph for the whole batch. It makes T jump between no draft and one.

Steps are averaged, robustly, in cells of similar batch size, K and depth, whose evidence is
capped; the coefficients are a ridge fit to the cells, with a smoothness penalty that makes V
linear where nothing has been measured. Another makes its slope that of prompts there, once some
were timed: a draft and a prompt token are the same work where a pass is bound by arithmetic, and
where prompts fill every step there is little else to go by. So T is known for a K that this batch
has never run, old loads are not forgotten while they do not occur, and one slow step moves little.
One sweep of coordinate descent per step keeps the fit current.

A fit alone can be led astray while every step has the same K (N and D then move together), so the
model also says which K a load still lacks: `missing_depths`, and `missing_beside` near the best.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from adaptive_spec.cost.coverage import TimedLoads, load_bin
from adaptive_spec.cost.normal_equations import absorb, descend
from adaptive_spec.cost.profile import CostProfile, extended
from adaptive_spec.cost.robust_mean import MOST_EVIDENCE, StepCell
from adaptive_spec.cost.step_curve_kernel import step_curve
from adaptive_spec.step import Capability, FloatArray, StepOutcome

_KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
_FALLS = slice(1 + _KNOTS.index(2), 1 + _KNOTS.index(8))
"""Coefficients of the segments of V from 2 to 8 tokens, which may fall, ..."""
_MOST_FALL = 0.1
"""... each by so much of a step."""
_SAMPLES = 3
"""Steps to be timed with each K of a load, while few loads are known."""
_SAMPLES_LATER = 1
_KNOWN_LOADS = 2
"""So many, all timed, tell what a step has of its own and by request."""
_SAMPLES_BESIDE = 2
_CACHED_BATCHES = 1024

# Penalties, in units of one step's squared relative error.
_RIDGE = 0.02
_SMOOTHNESS = 0.3
_LIKE_PROMPTS = 1.0
_PROFILE_RIDGE = 4.0

_PROMPT_ERROR = 5.0
"""What is wrong with the time of prompts for good, in units of the noise of a step as long."""
_PROMPT = 32.0
"""Tokens of a prompt that counts for as much as what is guessed of prompts beforehand."""
_FAR = 256.0
"""Verified tokens from where slopes are compared over stretches that do not get any longer."""


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
        self._least: FloatArray = np.zeros(size)
        self._profile = profile
        self._cells: dict[tuple[int, int, int, int], StepCell] = {}
        self._timed = TimedLoads(capability)
        self._tokens_of_batch: dict[int, FloatArray] = {}
        self._passes: FloatArray = np.arange(capability.max_draft_tokens + 1, dtype=np.float64)
        if capability.off_pass:
            self._passes[0] = 1.0
        self.samples = 0
        self._unit = 0.0
        """Weight of a typical step; 0 with a profile."""
        self._pull: FloatArray = np.zeros(0)
        """What the slope of prompts adds to the moments of the others; empty before it is known."""
        self._pulled_to = 0.0
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
        return step_curve(
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
        seconds = float(np.dot(self._coefficients, self._features(outcome)))
        if outcome.ragged:
            drafting = float(self.draft_seconds(outcome.batch_size)[outcome.draft_depth])
            seconds += self._capability.ragged_penalty * (seconds - drafting)
        return seconds

    def learn(self, outcome: StepOutcome, *, cold: bool = False) -> None:
        """Take up a step's measured duration; does nothing if it is not a clean measurement.

        `cold`: the drafter's pass was left out (OFF_COLD).
        """
        seconds = outcome.seconds
        if not (0.0 < seconds < 60.0) or outcome.batch_size == 0:
            return
        if not self.samples and self._profile is None:
            self._start_from_scale(seconds, outcome)
        seconds -= self._ragged_share(outcome, seconds, cold=cold)
        self.samples += 1
        if not self._pull.size and self._unit and outcome.prefill_tokens > outcome.batch_tokens:
            self._compare_with_prompts()
        features = self._features(outcome, cold=cold)
        self._timed.count(outcome)
        depth = round(outcome.batch_tokens / outcome.batch_size) - 1
        load = load_bin(outcome.batch_size)
        # Steps with a draft and without one are never alike, though both may be K = 0 on average.
        kind = depth if outcome.batch_tokens > outcome.batch_size else -1
        passes = -1 if cold else outcome.draft_depth
        key = (load, kind, passes, outcome.prefill_tokens.bit_length())
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = StepCell(features, seconds)
        else:
            self._absorb(cell, -cell.weight)
            cell.add(features, seconds)
        cell.weight = self._weight_of(cell)
        self._absorb(cell, cell.weight)
        descend(self._gram, self._moment, self._coefficients, self._least)
        if self._pull.size:
            self._follow_prompts()

    def missing_depths(self, batch_size: int) -> list[int]:
        """The K that steps of this load have not been measured with often enough, ascending."""
        few = self._profile is None and self._timed.complete(_SAMPLES) < _KNOWN_LOADS
        return self._timed.missing(batch_size, _SAMPLES if few else _SAMPLES_LATER)

    def missing_beside(self, batch_size: int, k: float) -> list[int]:
        """Likewise the K next to this mean K, of batches of about this size."""
        return self._timed.missing_beside(batch_size, k, _SAMPLES_BESIDE)

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

    def _ragged_share(self, outcome: StepOutcome, seconds: float, *, cold: bool) -> float:
        """Seconds that a ragged batch took longer; the planner adds them to ragged plans."""
        penalty = self._capability.ragged_penalty
        if not outcome.ragged or penalty <= 0.0:
            return 0.0
        drafting = 0.0
        if not cold:
            drafting = float(self.draft_seconds(outcome.batch_size)[outcome.draft_depth])
        return penalty / (1.0 + penalty) * max(seconds - drafting, 0.0)

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

    def _weight_of(self, cell: StepCell) -> float:
        """Steps' evidence over squared seconds.

        The more of a cell's time is that of prompts, the less evidence it is: their time isn't as
        linear as the model has it, and no number of such steps may bend what is known of drafts.
        """
        steps = min(cell.count, MOST_EVIDENCE)
        prompts = float(self._coefficients[self._prefill] * cell.features[self._prefill])
        wrong = _PROMPT_ERROR * min(prompts / cell.seconds, 1.0)
        return steps / (1.0 + steps * wrong * wrong) / (cell.seconds * cell.seconds)

    def _absorb(self, cell: StepCell, weight: float) -> None:
        """Add a cell to the normal equations; a negative weight takes it out again."""
        absorb(self._gram, self._moment, cell.features, cell.seconds, weight)

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
        strength[self._prefill] *= _PROMPT**2
        strength[self._pass_request] *= outcome.batch_size**2
        strength[self._any_draft_request] *= outcome.batch_size**2
        self._set_prior(guess, scale * strength, scale)
        self._unit = scale

    def _start_from_profile(self, profile: CostProfile) -> None:
        heights = extended(profile, self._knots)
        guess = np.zeros_like(self._coefficients)
        guess[0] = heights[0]
        last = self._request - 1
        least = np.zeros_like(guess)
        least[_FALLS] = -_MOST_FALL * heights[0]
        guess[1:last] = np.maximum(np.diff(heights), least[1:last])
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
        self._least[_FALLS] = -_MOST_FALL * guess[0]
        self._gram[:] = np.diag(strength)
        self._moment[:] = strength * guess
        # Slopes of neighbouring segments should be alike: (rise_k / w_k - rise_k+1 / w_k+1)^2.
        for k in range(len(self._knots) - 1):
            width = math.sqrt(self._widths[k] * self._widths[k + 1])
            row = np.zeros(len(guess))
            row[1 + k], row[2 + k] = width / self._widths[k], -width / self._widths[k + 1]
            self._gram += (smoothness * _SMOOTHNESS) * row[:, None] * row

    def _compare_with_prompts(self) -> None:
        """Where nothing has been measured, slopes should be like that of prompts as well."""
        near = 1.0 / (1.0 + self._knots / _FAR)
        segments = slice(1, 1 + len(near))
        self._gram[segments, segments] += self._unit * _LIKE_PROMPTS * np.diag(near * near)
        self._pull = self._unit * _LIKE_PROMPTS * near * near * self._widths

    def _follow_prompts(self) -> None:
        """The slope of prompts has changed. It is pulled by nothing in turn."""
        slope = float(self._coefficients[self._prefill])
        self._moment[1 : 1 + len(self._pull)] += self._pull * (slope - self._pulled_to)
        self._pulled_to = slope

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
