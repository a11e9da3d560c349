"""Step times of every number of drafts, by what is believed of them.

Verified tokens count as the engine runs them, padded to the next captured size. Steps whose K
differ between requests take a penalty p longer, which is learned from step times. The penalty is
what such a step takes longer than one of equal K with as many drafts:

    p = mean(T / T^ - 1 | K differ) - mean(T / T^ - 1 | K equal)

T^ is the predicted verify time of a step of equal K. Both means are of steps with about as many
requests and drafts, so that what is wrong with the prediction there cancels out; between loads it
does not, and where nearly all steps of one load differ in K, its error would pass for a penalty,
which the fit would then leave out of the step times. Loads count by the steps of their rarer kind.
The means forget, and a prior counts as some steps. With varlen decode graphs the true value is
small (0 to 3 percent), as both kinds of steps replay the same graphs.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np

from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policies.kernels import kernel
from adaptive_spec.policies.step_time.belief import (
    ANY_DRAFT,
    CONTEXT,
    LAST,
    PASS,
    PASS_REQUEST,
    PREFILL,
    REQUEST,
    TOKENS,
    WIDTHS,
    Belief,
    SavedBelief,
    as_profile,
    features_of,
    features_of_plans,
)
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.step import Capability, FloatArray, IntArray, StepOutcome

_MEMORY = 64
"""Steps of each kind that the means of a load remember."""
_PRIOR_STEPS = 16
"""Weight of the prior, in steps of the rarer kind."""
_LARGEST_RESIDUAL = 0.5
"""Bound of one step's T / T^ - 1, against stalled steps."""
_GRID = 200.0
"""Steps of the penalty's value per unit (0.5 percent each): below, a difference is noise."""


class RaggedPenalty:
    """Learns p. A prior of 0 means that the engine has no such penalty, and p stays 0.

    Args:
        prior: p before anything is measured.
    """

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._loads: dict[tuple[int, int], tuple[list[float], list[int]]] = {}
        """Means and counts by kind of step, for each load."""
        self._value = max(prior, 0.0)

    @property
    def value(self) -> float:
        """p >= 0, rounded to half a percent."""
        return self._value

    def add_step(
        self, seconds: float, expected: float, *, ragged: bool, load: tuple[int, int] = (0, 0)
    ) -> None:
        """Take up the verify time of a step without prompts.

        Args:
            seconds: measured.
            expected: predicted for a step of equal K (> 0).
            ragged: K differed between the requests.
            load: number of requests and of drafts, in classes that are compared.
        """
        if not self._prior:
            return
        residual = seconds / expected - 1.0
        residual = max(-_LARGEST_RESIDUAL, min(residual, _LARGEST_RESIDUAL))
        means, counts = self._loads.setdefault(load, ([0.0, 0.0], [0, 0]))
        counts[ragged] += 1
        means[ragged] += (residual - means[ragged]) / min(counts[ragged], _MEMORY)
        if not counts[not ragged]:
            return
        steps, total = float(_PRIOR_STEPS), _PRIOR_STEPS * self._prior
        for (equal, differ), seen in self._loads.values():
            steps += min(seen)
            total += min(seen) * (differ - equal)
        self._value = max(round(total / steps * _GRID), 0) / _GRID


_CACHED_BATCHES = 1024


class Padding:
    """Padded numbers of verified tokens."""

    def __init__(self, capability: Capability) -> None:
        self._buckets = capability.token_buckets
        self._kmax = capability.max_draft_tokens
        self._of_batch: dict[int, FloatArray] = {}

    def of(self, tokens: int) -> float:
        """Return the captured size that a step with this number of tokens runs at."""
        place = bisect_left(self._buckets, tokens)
        return float(self._buckets[place] if place < len(self._buckets) else tokens)

    def of_batch(self, batch_size: int) -> FloatArray:
        """Return the captured sizes for m = 0..B * Kmax verified drafts: [B * Kmax + 1]."""
        tokens = self._of_batch.get(batch_size)
        if tokens is None:
            if len(self._of_batch) >= _CACHED_BATCHES:
                self._of_batch.clear()
            count = batch_size * (self._kmax + 1)
            tokens = self.of_each(np.arange(batch_size, count + 1, dtype=np.float64))
            self._of_batch[batch_size] = tokens
        return tokens

    def of_each(self, tokens: FloatArray) -> FloatArray:
        """Return the captured size of each number of tokens."""
        if not self._buckets:
            return tokens
        place = np.searchsorted(self._buckets, tokens)
        sizes = np.append(self._buckets, 0.0)[place]
        return np.where(place < len(self._buckets), sizes, tokens)


def _step_curve_loop(
    tokens: FloatArray,
    knots: FloatArray,
    rises: FloatArray,
    last_slope: float,
    fixed: float,
    any_draft: float,
) -> FloatArray:
    curve = np.empty(len(tokens), np.float64)
    height = 0.0
    last = len(knots) - 1
    segment = 0
    slope = 0.0
    entered = -1
    for m in range(len(tokens)):
        while segment < last and tokens[m] >= knots[segment + 1]:
            height += rises[segment]
            segment += 1
        if segment != entered:
            entered = segment
            slope = last_slope
            if segment < last:
                # Not the rise itself, which differs in the last bit.
                slope = (height + rises[segment] - height) / (knots[segment + 1] - knots[segment])
        seconds = slope * (tokens[m] - knots[segment]) + height + fixed
        if m > 0:
            seconds += any_draft
        curve[m] = 1e-6 if seconds < 1e-6 else seconds
    return curve


@kernel(
    "float64[::1](float64[::1], float64[::1], float64[::1], float64, float64, float64)",
    _step_curve_loop,
)
def step_curve(
    tokens: FloatArray,
    knots: FloatArray,
    rises: FloatArray,
    last_slope: float,
    fixed: float,
    any_draft: float,
) -> FloatArray:
    """Verify time [M + 1] with m drafts: a piecewise linear curve over the tokens, and constants.

    Args:
        tokens: [M + 1] ascending, from the first knot on.
        knots: [S] ascending.
        rises: [S - 1] of the curve from knot to knot; it begins at 0.
        last_slope: per token past the last knot.
        fixed: seconds on top.
        any_draft: more seconds from one draft on.
    """
    heights, slopes = np.zeros(len(knots)), np.full(len(knots), last_slope)
    np.cumsum(rises, out=heights[1:])
    np.divide(heights[1:] - heights[:-1], knots[1:] - knots[:-1], out=slopes[:-1])
    segment = np.searchsorted(knots, tokens, side="right") - 1
    curve: FloatArray = slopes[segment] * (tokens - knots[segment]) + heights[segment]
    curve += fixed
    curve[1:] += any_draft
    return np.maximum(curve, 1e-6, out=curve)


UNSURE = 0.05
"""Standard deviation of a step time, relative to others, from where it counts as unknown."""
_ENOUGH_COLD = 2
"""Loads that tell what a drafter's pass takes of its own, and by request."""
_SHORTEST, _LONGEST = 1e-6, 60.0
"""Bounds of a measured time (seconds)."""
_WIDTHS: list[float] = WIDTHS.tolist()


class CostModel:
    """Predicts step times. All times in seconds.

    Args:
        capability: of the engine.
        profile: to start from.
        saved: what was believed when `profile` was learned.
    """

    def __init__(
        self,
        capability: Capability,
        profile: CostProfile | None = None,
        saved: SavedBelief | None = None,
    ) -> None:
        self._capability = capability
        self._profile = profile
        self.belief = Belief(0.5 * capability.max_draft_tokens)
        self._timed_cold: set[int] = set()
        """Loads that a step without the drafter was timed at, by `load_bin`."""
        self._timed_without: set[int] = set()
        """Loads that a step without drafts was timed at, by `load_bin`."""
        self._timed_drafts: dict[int, int] = {}
        """Steps with drafts that were timed at a load, by `load_bin`."""
        self._ragged = RaggedPenalty(capability.ragged_penalty)
        self._padding = Padding(capability)
        self._passes: FloatArray = np.arange(capability.max_draft_tokens + 1, dtype=np.float64)
        if capability.off_pass:  # where the depth is fixed, as many as ever
            self._passes[0] = 1.0 if capability.steers_depth else capability.max_draft_tokens
        self._passes_and_none: FloatArray = np.append(self._passes, 0.0)
        self.samples = 0
        """Steps measured since step times have changed."""
        self.changes = 0
        """Times that step times have changed."""
        self._begun = profile is not None
        self._begun_by_prompts = False
        """A step of prompts has set the scale; the first other one sets it again."""
        if profile is not None:
            self.belief.begin_with_profile(profile)
            if saved is not None:
                self.belief.restore(saved)

    @property
    def ready(self) -> bool:
        """Whether at least one step was measured, so that times can be predicted."""
        return self.samples > 0 or self._profile is not None or self.changes > 0

    @property
    def ragged_penalty(self) -> float:
        """Extra verify time of a step whose K differ, relative to one of equal K."""
        return self._ragged.value

    def verify_seconds(
        self, batch_size: int, context_tokens: int, prefill_tokens: int
    ) -> FloatArray:
        """Time of everything but drafting, with m = 0..B * Kmax drafts verified: [B * Kmax + 1]."""
        tokens = self._padding.of_batch(batch_size)
        known = self.belief.coefficients
        coefficients: list[float] = known.tolist()  # arithmetic on floats is faster
        fixed = (
            coefficients[0]
            + coefficients[REQUEST] * batch_size
            + coefficients[CONTEXT] * context_tokens
            + coefficients[PREFILL] * prefill_tokens
        )
        once, by_request, by_context = coefficients[ANY_DRAFT:]
        any_draft = once + by_request * batch_size + by_context * context_tokens
        return step_curve(
            tokens,
            TOKENS,
            known[1:LAST],
            coefficients[LAST] / _WIDTHS[-1],
            fixed,
            any_draft,
        )

    def draft_seconds(self, batch_size: int) -> FloatArray:
        """Time of drafting to each depth: [Kmax + 1]."""
        known = self.belief.coefficients
        per_pass = float(known[PASS]) + float(known[PASS_REQUEST]) * batch_size
        seconds: FloatArray = self._passes * per_pass
        return seconds

    def prefill_seconds(self, prefill_tokens: float) -> float:
        """Time that prompt tokens add to a step."""
        return float(self.belief.coefficients[PREFILL]) * prefill_tokens

    def predict(self, outcome: StepOutcome) -> float:
        """Predicted duration of a step that has run."""
        if not self.ready:
            return math.nan
        seconds = float(np.dot(self.belief.coefficients, self._features(outcome)))
        if outcome.ragged:
            drafting = float(self.draft_seconds(outcome.batch_size)[outcome.draft_depth])
            seconds += self.ragged_penalty * (seconds - drafting)
        return seconds

    def goodput_covariance(
        self,
        batch_size: int,
        context_tokens: int,
        drafts: IntArray | list[int],
        depths: IntArray | list[int],
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Seconds [A] of steps without prompts, covariance [A, A] of their logarithms, and drift.

        The drift [A, A] is by how much that covariance grows in a step.

        Args:
            batch_size: of all.
            context_tokens: of all.
            drafts: [A] verified.
            depths: [A] drafted; -1: without the drafter.
        """
        return self.belief.covariance(self._rows(batch_size, context_tokens, drafts, depths))

    def ratios(
        self, loads: list[tuple[int, int]], drafts: IntArray, depths: list[int]
    ) -> tuple[FloatArray, FloatArray]:
        """Durations [L, A] over that of the last of A choices, and variances of their logarithms.

        Args:
            loads: [L] requests and context tokens of all.
            drafts: [L, A] verified.
            depths: [A] drafted; -1: without the drafter.
        """
        rows = [self._rows(*load, each, depths) for load, each in zip(loads, drafts, strict=True)]
        return self.belief.ratios(np.array(rows))

    def _rows(
        self,
        batch_size: int,
        context_tokens: int,
        drafts: IntArray | list[int],
        depths: IntArray | list[int],
    ) -> FloatArray:
        """[A, P] features of steps without prompts."""
        tokens = np.asarray(drafts) + float(batch_size)
        padded = self._padding.of_each(tokens)
        passes = self._passes_and_none[depths]
        return features_of_plans(batch_size, tokens > batch_size, context_tokens, padded, passes)

    def learn_step_time(self, outcome: StepOutcome, *, cold: bool = False) -> bool:
        """Take up a step's measured duration; does nothing if it is not a clean measurement.

        True if step times have jumped: the belief is wide again.
        `cold`: the drafter's pass was left out (OFF_COLD).
        """
        seconds = outcome.seconds
        if not (_SHORTEST < seconds < _LONGEST) or outcome.batch_size == 0:
            return False
        prompts = outcome.prefill_tokens > outcome.batch_tokens
        if not self._begun or (self._begun_by_prompts and not prompts):
            self.belief.begin_with_step(outcome, seconds)
            self._begun, self._begun_by_prompts = True, prompts
        if self._capability.ragged_penalty and outcome.batch_size > 1:
            seconds -= self._ragged_share(outcome, seconds, cold=cold)
        self.samples += 1
        load = load_bin(outcome.batch_size)
        if cold:
            self._timed_cold.add(load)
        if not prompts and outcome.batch_tokens > outcome.batch_size:
            self._timed_drafts[load] = self._timed_drafts.get(load, 0) + 1
        elif not prompts:
            self._timed_without.add(load)
        changed = self.belief.learn_step_time(outcome, self._features(outcome, cold=cold), seconds)
        if self.belief.absurd or not math.isfinite(np.add.reduce(self.belief.coefficients)):
            self.belief, self._begun = Belief(0.5 * self._capability.max_draft_tokens), False
            changed = True
        if changed:
            self._time_again()
            self.samples = 0
        return changed

    def doubt(self) -> None:
        """Doubt what is believed: step times may have changed unseen."""
        self.belief.widen()
        self._time_again()

    def _time_again(self) -> None:
        self._timed_cold.clear()
        self._timed_without.clear()
        self._timed_drafts.clear()
        self._profile = None
        self.changes += 1

    def timed_cold(self, batch_size: int) -> bool:
        """Whether the drafter's time is known at this load even if it runs in every step."""
        timed = self._timed_cold
        known = load_bin(batch_size) in timed or len(timed) >= _ENOUGH_COLD
        return self._profile is not None or known

    def timed_without(self, batch_size: int) -> bool:
        """Whether a step without drafts was timed at this load since step times have changed."""
        return load_bin(batch_size) in self._timed_without

    def timed_drafts(self, batch_size: int) -> int:
        """Steps with drafts that were timed at this load since step times have changed."""
        return self._timed_drafts.get(load_bin(batch_size), 0)

    def profile(self) -> CostProfile | None:
        """Return the learned step times as a profile; None before the first step."""
        if not self.ready:
            return None
        return as_profile(self.belief.coefficients)

    def _ragged_share(self, outcome: StepOutcome, seconds: float, *, cold: bool) -> float:
        """Learn the ragged penalty, and return the seconds that it added to this step.

        The planner adds them to ragged plans.
        """
        drafting = 0.0
        if not cold:
            drafting = float(self.draft_seconds(outcome.batch_size)[outcome.draft_depth])
        verifying = max(seconds - drafting, 0.0)
        expected = (
            float(np.dot(self.belief.coefficients, self._features(outcome, cold=cold))) - drafting
        )
        if not outcome.prefill_tokens and expected > _SHORTEST:
            mean = outcome.batch_tokens / outcome.batch_size - 1.0
            load = load_bin(outcome.batch_size), round(mean)
            self._ragged.add_step(verifying, expected, ragged=outcome.ragged, load=load)
        if not outcome.ragged:
            return 0.0
        penalty = self.ragged_penalty
        return penalty / (1.0 + penalty) * verifying

    def _features(self, outcome: StepOutcome, *, cold: bool = False) -> FloatArray:
        passes = 0.0 if cold else float(self._passes[outcome.draft_depth])
        return features_of(outcome, self._padding.of(outcome.batch_tokens), passes)
