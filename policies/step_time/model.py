"""Cost model: how long a step takes, learned online, with or without a prior profile.

    T = V(N) + a B + c sum(context) + p prefill + passes(D) (d + e B)
        + [any draft] (f + g B + q sum(context))

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
A sweep of coordinate descent per step, with one along all far slopes, keeps the fit current.

A fit alone can be led astray while every step has the same K (N and D then move together), so the
model also says which K a load still lacks: `missing_depths`, and `missing_beside` near the best.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.policies.step_time.change_detection import MisfitWatch, StepTimeWatch
from adaptive_spec.policies.step_time.coefficients import (
    ANY_DRAFT,
    CONTEXT,
    FALLS,
    FAR_SLOPE,
    LAST,
    MOST_FALL,
    PASS,
    PASS_REQUEST,
    PREFILL,
    REQUEST,
    SIZE,
    TOKENS,
    WIDTHS,
    Guess,
    as_profile,
    features_of,
    guess_from_profile,
    guess_from_scale,
    weak_guess,
)
from adaptive_spec.policies.step_time.coverage import TimedLoads, alike
from adaptive_spec.policies.step_time.normal_equations import absorb, exchange
from adaptive_spec.policies.step_time.padding import Padding
from adaptive_spec.policies.step_time.profile import CostProfile
from adaptive_spec.policies.step_time.ragged_penalty import RaggedPenalty
from adaptive_spec.policies.step_time.robust_mean import MOST_EVIDENCE, StepCell
from adaptive_spec.policies.step_time.step_curve_kernel import step_curve
from adaptive_spec.step import Capability, FloatArray, StepOutcome

_SAMPLES = 3
"""Steps to be timed with each K of a load, while few loads are known."""
_SAMPLES_LATER = 1
_KNOWN_LOADS = 2
"""So many, all timed, tell what a step has of its own and by request."""

_LIKE_PROMPTS = 1.0
"""Strength of that penalty, in units of one step's squared relative error."""
_PROMPT_ERROR = 5.0
"""What is wrong with the time of prompts for good, in units of the noise of a step as long."""
_SHORTEST, _LONGEST = 1e-6, 60.0
"""Seconds; what took less or longer was no step."""
_ALIKE = 0.25
"""Steps whose expected times differ by more than so much are not held against each other."""
_AGED = 0.05
"""Steps that a cell counts for after a change, until it is timed anew."""
_WIDTHS: list[float] = WIDTHS.tolist()
_FAR = 256.0
"""Verified tokens from where slopes are compared over stretches that do not get any longer."""


class CostModel:
    """Predicts step times. All times in seconds."""

    def __init__(self, capability: Capability, profile: CostProfile | None = None) -> None:
        self._capability = capability
        self._gram: FloatArray = np.zeros((SIZE, SIZE))
        self._moment: FloatArray = np.zeros(SIZE)
        self._coefficients: FloatArray = np.zeros(SIZE)
        self._least: FloatArray = np.zeros(SIZE)
        self._profile = profile
        self._cells: dict[tuple[int, int, int, int], StepCell] = {}
        self._timed = TimedLoads(capability)
        self._ragged = RaggedPenalty(capability.ragged_penalty)
        self._padding = Padding(capability)
        self._passes: FloatArray = np.arange(capability.max_draft_tokens + 1, dtype=np.float64)
        if capability.off_pass:  # where the depth is fixed, as many as ever
            self._passes[0] = 1.0 if capability.steers_depth else capability.max_draft_tokens
        self.samples = 0
        """Steps measured since step times have changed."""
        self.changes = 0
        """Times that what was timed has aged."""
        self._doubted = False
        self._watch, self._misfit = StepTimeWatch(), MisfitWatch()
        self._calm: FloatArray = self._coefficients
        """Coefficients when no change was suspected, at a load of this number."""
        self._calm_load = -1
        self._unit = 0.0
        """Weight of a typical step; 0 with a profile."""
        self._guessed_by_prompts = self._prompts_timed = False
        """A step of prompts for the most part has set the scale: the next other one does again."""
        self._pull: FloatArray = np.zeros(0)
        """What the slope of prompts adds to the moments of the others; empty before it is known."""
        self._pulled_to = 0.0
        if profile is not None:
            self._begin(guess_from_profile(profile))

    @property
    def ready(self) -> bool:
        """There is something to predict from."""
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
        coefficients: list[float] = self._coefficients.tolist()  # arithmetic on floats is faster
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
            self._coefficients[1:LAST],
            coefficients[LAST] / _WIDTHS[-1],
            fixed,
            any_draft,
        )

    def draft_seconds(self, batch_size: int) -> FloatArray:
        """Time of drafting to each depth: [Kmax + 1]."""
        known = self._coefficients
        per_pass = float(known[PASS]) + float(known[PASS_REQUEST]) * batch_size
        seconds: FloatArray = self._passes * per_pass
        return seconds

    def prefill_seconds(self, prefill_tokens: int) -> float:
        """Time that prompt tokens add to a step."""
        return float(self._coefficients[PREFILL]) * prefill_tokens

    def predict(self, outcome: StepOutcome) -> float:
        """Predicted duration of a step that has run."""
        if not self.ready:
            return math.nan
        seconds = float(np.dot(self._coefficients, self._features(outcome)))
        if outcome.ragged:
            drafting = float(self.draft_seconds(outcome.batch_size)[outcome.draft_depth])
            seconds += self.ragged_penalty * (seconds - drafting)
        return seconds

    def learn(self, outcome: StepOutcome, *, cold: bool = False) -> bool:
        """Take up a step's measured duration; does nothing if it is not a clean measurement.

        True if step times have changed: what was timed has aged, and every K is missing again.
        `cold`: the drafter's pass was left out (OFF_COLD).
        """
        seconds = outcome.seconds
        if not (_SHORTEST < seconds < _LONGEST) or outcome.batch_size == 0:
            return False
        prompts = outcome.prefill_tokens > outcome.batch_tokens
        if self._profile is None and (not self._unit or (self._guessed_by_prompts and not prompts)):
            self._guess(guess_from_scale(seconds, outcome), seconds)
            self._guessed_by_prompts = prompts
        if self._capability.ragged_penalty and outcome.batch_size > 1:
            seconds -= self._ragged_share(outcome, seconds, cold=cold)
        self.samples += 1
        if self._doubted:
            self._doubted = False
            self._age(1.0, seconds, outcome)
        if not self._pull.size and self._unit and (prompts or self._prompts_timed):
            self._prompts_timed = True
            self._compare_with_prompts()
        features = self._features(outcome, cold=cold)
        self._timed.count(outcome, cold=cold)
        key = alike(outcome, cold=cold)
        cell = self._cells.get(key)
        changed = self._changed(cell, features, outcome, key[0], seconds)
        was = features, 0.0, 0.0
        if cell is not None:
            was = cell.features, cell.seconds, cell.weight
        if cell is None or not cell.count:
            cell = self._cells[key] = StepCell(features, seconds)
        else:
            off = features - cell.features
            cell.add(off, seconds, float(np.dot(self._coefficients, off)))
            factor = 1.0 if cell.settled is None else self._watch.follow(cell.moved)
            if factor != 1.0:
                absorb(self._gram, self._moment, *was[:2], -was[2])
                was = features, 0.0, 0.0
                self._scale_others(cell, factor)
        cell.weight = self._weight_of(cell)
        now = cell.features, cell.seconds, cell.weight
        exchange(self._gram, self._moment, self._coefficients, self._least, FAR_SLOPE, *was, *now)
        if self._pull.size:
            self._follow_prompts()
        if cell.settled is not None and not outcome.prefill_tokens:
            fit = float(np.dot(self._coefficients, cell.features))
            if self._misfit.observe(fit / cell.seconds - 1.0):
                self._age(1.0, cell.seconds, outcome)
                self.samples = 0
                return True
        return changed

    def _changed(
        self,
        cell: StepCell | None,
        features: FloatArray,
        outcome: StepOutcome,
        load: int,
        seconds: float,
    ) -> bool:
        """Whether steps have changed. If so, all that was timed is scaled, and ages."""
        if cell is not None and cell.settled is not None:
            before, expected, spread = cell.settled
            moved = float(np.dot(self._coefficients, features - before))
            if abs(moved) > _ALIKE * expected:
                return False
            expected += moved
        elif self._watch.calm or load != self._calm_load:
            return False
        else:  # K may change with the times, and a change that is suspected is not given up
            expected, spread = max(float(np.dot(self._calm, features)), _SHORTEST), 0.0
        factor = self._watch.observe(seconds, expected, spread)
        if factor is None:
            if self._watch.calm:
                self._calm, self._calm_load = self._coefficients.copy(), load
            return False
        # What got faster has taken along what is predicted.
        now = max(float(np.dot(self._coefficients, features)), _SHORTEST)
        self._age(factor * expected / now if factor < 1.0 else factor, factor * expected, outcome)
        self.samples = 0
        return True

    def _scale_others(self, cell: StepCell, factor: float) -> None:
        """Scale all that was timed but this cell, which is not in the equations now."""
        for each in self._cells.values():
            if each is not cell:
                each.seconds *= factor
        self._moment *= factor
        self._pulled_to *= factor
        self._coefficients *= factor

    def _age(self, factor: float, seconds: float, outcome: StepOutcome) -> None:
        """Scale all that was timed, and let it count for little. `seconds` of such a step."""
        guess = np.minimum(factor * self._coefficients, _LONGEST)
        # Cells not timed since the change before are out of date twice.
        self._cells = {key: each for key, each in self._cells.items() if each.count}
        for each in self._cells.values():
            each.age(factor)
            each.weight = _AGED / each.seconds**2
        self._guess(weak_guess(guess, seconds, outcome), seconds)
        self._timed = TimedLoads(self._capability)
        self._profile = None
        self.changes += 1

    def doubt(self) -> None:
        """Time every K again from the next step on: step times may have changed unseen."""
        self._doubted = True

    def missing_depths(self, batch_size: int) -> list[int]:
        """The K that steps of this load have not been measured with often enough, ascending."""
        missing = self._timed.missing(batch_size, _SAMPLES)
        if not missing:
            return missing
        few = self._profile is None and self._timed.complete(_SAMPLES) < _KNOWN_LOADS
        return missing if few else self._timed.missing(batch_size, _SAMPLES_LATER)

    def timed(self, batch_size: int, k: int) -> bool:
        """Steps of this load have been measured with this K."""
        return self._timed.timed(batch_size, k)

    def timed_cold(self, batch_size: int) -> bool:
        """Whether the drafter's time is known at this load even if it runs in every step."""
        return self._profile is not None or self._timed.timed_cold(batch_size)

    def missing_beside(self, batch_size: int, k: float, wanted: int) -> list[int]:
        """K next to this mean K that batches of about this size lack, ascending."""
        return self._timed.missing_beside(batch_size, k, wanted)

    def profile(self) -> CostProfile | None:
        """What has been learned, as a profile; None before the first step."""
        if not self.ready:
            return None
        return as_profile(self._coefficients)

    def _ragged_share(self, outcome: StepOutcome, seconds: float, *, cold: bool) -> float:
        """Learn the ragged penalty, and return the seconds that it added to this step.

        The planner adds them to ragged plans.
        """
        drafting = 0.0
        if not cold:
            drafting = float(self.draft_seconds(outcome.batch_size)[outcome.draft_depth])
        verifying = max(seconds - drafting, 0.0)
        expected = float(np.dot(self._coefficients, self._features(outcome, cold=cold))) - drafting
        if not outcome.prefill_tokens and expected > _SHORTEST:
            load = alike(outcome, cold=cold)[:2]
            self._ragged.observe(verifying, expected, ragged=outcome.ragged, load=load)
        if not outcome.ragged:
            return 0.0
        penalty = self.ragged_penalty
        return penalty / (1.0 + penalty) * verifying

    def _features(self, outcome: StepOutcome, *, cold: bool = False) -> FloatArray:
        passes = 0.0 if cold else float(self._passes[outcome.draft_depth])
        return features_of(outcome, self._padding.of(outcome.batch_tokens), passes)

    def _weight_of(self, cell: StepCell) -> float:
        """Steps' evidence over squared seconds.

        The more of a cell's time is that of prompts, the less evidence it is: their time isn't as
        linear as the model has it, and no number of such steps may bend what is known of drafts.
        """
        steps = min(cell.count, MOST_EVIDENCE)
        prompts = float(self._coefficients[PREFILL] * cell.features[PREFILL])
        wrong = _PROMPT_ERROR * min(prompts / cell.seconds, 1.0)
        return steps / (1.0 + steps * wrong * wrong) / (cell.seconds * cell.seconds)

    def _guess(self, guess: Guess, seconds: float) -> None:
        """Start again from a guess and what has been timed. `seconds` of a typical step."""
        self._begin(guess)
        self._unit = 1.0 / seconds**2
        for each in self._cells.values():
            absorb(self._gram, self._moment, each.features, each.seconds, each.weight)

    def _begin(self, guess: Guess) -> None:
        self._coefficients = guess.coefficients.copy()
        self._least[FALLS] = -MOST_FALL * guess.coefficients[0]
        self._gram, self._moment = guess.gram.copy(), guess.moment.copy()
        self._pull = np.zeros(0)
        self._pulled_to = 0.0

    def _compare_with_prompts(self) -> None:
        """Where nothing has been measured, slopes should be like that of prompts as well."""
        near = 1.0 / (1.0 + TOKENS / _FAR)
        segments = slice(1, 1 + len(near))
        self._gram[segments, segments] += self._unit * _LIKE_PROMPTS * np.diag(near * near)
        self._pull = self._unit * _LIKE_PROMPTS * near * near * WIDTHS

    def _follow_prompts(self) -> None:
        """The slope of prompts has changed. It is pulled by nothing in turn."""
        slope = float(self._coefficients[PREFILL])
        self._moment[1 : 1 + len(self._pull)] += self._pull * (slope - self._pulled_to)
        self._pulled_to = slope
