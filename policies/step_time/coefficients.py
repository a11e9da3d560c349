"""The coefficients of the cost model: their places, and what is guessed of them beforehand.

    [T at the least tokens, rises of V over its segments, request, context, prompt token,
     pass, pass by request, any draft, any draft by request]

A guess is a vector of coefficients with the equations of a ridge that holds them there. Where no
profile is given, the first step sets its scale and a roofline its shape: a pass over few tokens is
bound by reading the weights and takes as long for one as for `_KNEE`; past those each token costs
the same. Which is crude, but it tells that eight drafts for each of 256 requests are too many.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from adaptive_spec.policies.step_time.profile import CostProfile, extended
from adaptive_spec.step import FloatArray, StepOutcome

KNOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
LAST = len(KNOTS)
"""Place of the rise over the last segment, which is open."""
REQUEST, CONTEXT, PREFILL, PASS, PASS_REQUEST, ANY_DRAFT, ANY_DRAFT_REQUEST, ANY_DRAFT_CONTEXT = (
    range(LAST + 1, LAST + 9)
)
SIZE = LAST + 9
FALLS = slice(1 + KNOTS.index(2), 1 + KNOTS.index(8))
"""Coefficients of the segments of V from 2 to 8 tokens, which may fall, ..."""
MOST_FALL = 0.1
"""... each by so much of a step."""

# Penalties, in units of one step's squared relative error.
_RIDGE = 0.02
_SMOOTHNESS = 0.3
_HELD_TOKENS = 16.0
"""Tokens of a segment by which its slope is held, at most. Held by whole widths, the widest of them
outweighed what was measured wherever the first step was much shorter than the later ones."""
_PROFILE_RIDGE = 4.0
_SELDOM = 3.0
"""Few GPUs read the context again for drafts; where none does, noise must not pass for it."""

_PROMPT = 32.0
"""Tokens of a prompt that counts for as much as what is guessed of prompts beforehand."""
_PASS_SHARE = 0.3
"""Time of a drafter's pass relative to a step with five passes less."""
_KNEE = 160.0
"""Verified tokens up to which a pass takes as long as one over a single token.

16-bit weights: twice the operations per byte of memory that a GPU can do, at the efficiency that
such passes reach: 150 to 200 on an A100 or H100."""

TOKENS: FloatArray = np.array(KNOTS, dtype=np.float64)
WIDTHS: FloatArray = np.diff(TOKENS, append=2.0 * TOKENS[-1])

_FAR = KNOTS.index(96)
FAR_SLOPE: FloatArray = np.zeros(SIZE)
"""[P] direction in which all slopes past 96 tokens change alike. Smoothness ties them to one
another, and coordinate descent moves such a chain by little in a step. With all past 256 tokens, a
cold H100 lost 0.3 % more of its first 500 steps."""
FAR_SLOPE[1 + _FAR : 1 + LAST] = WIDTHS[_FAR:]

_WIDTHS: list[float] = WIDTHS.tolist()
_RISEN: FloatArray = np.tri(LAST, SIZE)
"""[segments, P]: 1 for the step itself and for each segment below that of its tokens."""


def features_of(outcome: StepOutcome, tokens: float, passes: float) -> FloatArray:
    """Return the features [P] of a step, whose product with the coefficients is its duration.

    Args:
        outcome: the step.
        tokens: verified tokens as the engine runs them.
        passes: of the drafter.
    """
    segment = bisect_right(KNOTS, tokens)
    features: FloatArray = _RISEN[segment - 1].copy()
    features[segment] = (tokens - KNOTS[segment - 1]) / _WIDTHS[segment - 1]
    features[REQUEST] = outcome.batch_size
    features[CONTEXT] = outcome.context_tokens
    features[PREFILL] = outcome.prefill_tokens
    features[PASS] = passes
    features[PASS_REQUEST] = passes * outcome.batch_size
    if outcome.batch_tokens > outcome.batch_size:
        features[ANY_DRAFT] = 1.0
        features[ANY_DRAFT_REQUEST] = outcome.batch_size
        features[ANY_DRAFT_CONTEXT] = outcome.context_tokens
    return features


class Guess(NamedTuple):
    """Coefficients [P], and the equations that hold them there: gram [P, P], moment [P]."""

    coefficients: FloatArray
    gram: FloatArray
    moment: FloatArray


def guess_from_scale(seconds: float, outcome: StepOutcome) -> Guess:
    """Guess weakly, from the duration of a single step."""
    passes = max(outcome.draft_depth, 1)
    guess = np.zeros(SIZE)
    guess[PASS] = _PASS_SHARE * seconds / (passes + 5.0)
    verify = seconds - passes * guess[PASS]
    roofline = np.maximum(np.append(TOKENS, TOKENS[-1] + WIDTHS[-1]) / _KNEE, 1.0)
    # A prompt's token is as much work as a draft.
    roofline *= verify / max((outcome.batch_tokens + outcome.prefill_tokens) / _KNEE, 1.0)
    guess[0] = roofline[0]
    guess[1 : LAST + 1] = np.diff(roofline)
    return weak_guess(guess, seconds, outcome)


def weak_guess(coefficients: FloatArray, seconds: float, outcome: StepOutcome) -> Guess:
    """Hold these coefficients weakly: a step's own noise counts for more."""
    strength = np.full(SIZE, _RIDGE)
    # In units of a typical step, so that no coefficient is held by its own unit.
    strength[REQUEST] *= outcome.batch_size**2
    strength[CONTEXT] *= max(outcome.context_tokens, 1) ** 2
    strength[PREFILL] *= _PROMPT**2
    strength[PASS_REQUEST] *= outcome.batch_size**2
    strength[ANY_DRAFT_REQUEST] *= outcome.batch_size**2
    strength[ANY_DRAFT_CONTEXT] = _SELDOM * strength[CONTEXT]
    strength[1 : LAST + 1] *= np.minimum(_HELD_TOKENS / WIDTHS, 1.0) ** 2
    # A guess far above a step is wrong by as much, and must not hold the slopes beside it.
    rises = coefficients[1 : LAST + 1] / seconds
    strength[1 : LAST + 1] /= np.maximum(rises, 1.0) ** 2
    gram = np.diag(strength)
    # What is wrong with the slopes of neighbouring segments should be alike:
    # (rise_k / w_k - rise_k+1 / w_k+1)^2.
    for k in range(LAST - 1):
        width = math.sqrt(WIDTHS[k] * WIDTHS[k + 1])
        row = np.zeros(SIZE)
        row[1 + k], row[2 + k] = width / WIDTHS[k], -width / WIDTHS[k + 1]
        gram += _SMOOTHNESS * row[:, None] * row
    gram /= seconds**2
    return Guess(coefficients, gram, gram @ coefficients)


def guess_from_profile(profile: CostProfile) -> Guess:
    """Take a profile's coefficients for what some steps have measured."""
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
    strength = np.full(SIZE, _PROFILE_RIDGE)
    strength[REQUEST] *= 16.0**2
    strength[CONTEXT] *= 4096.0**2
    strength[PREFILL] *= 256.0**2
    strength[PASS_REQUEST] *= 16.0**2
    strength[ANY_DRAFT_REQUEST] *= 16.0**2
    strength[ANY_DRAFT_CONTEXT] = strength[CONTEXT]
    strength /= max(heights[0], 1e-6) ** 2
    return Guess(guess, np.diag(strength), strength * guess)


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
