"""The coefficients of step times: their places, and what is guessed of them beforehand.

    [T at the least tokens, rises of V over its segments, request, context, prompt token,
     pass, pass by request, any draft, any draft by request]

Where no profile is given, the first step sets the scale of a first guess and a roofline its shape:
a pass over few tokens is bound by reading the weights and takes as long for one as for `KNEE`; past
those each token costs the same. The guess is crude, but it tells that eight drafts for each of 256
requests are too many.
"""

from __future__ import annotations

from bisect import bisect_right

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
        outcome.batch_tokens,
        outcome.context_tokens,
        outcome.prefill_tokens,
        tokens,
        passes,
    )


def features(
    batch_size: int, batch_tokens: int, context: int, prompts: int, tokens: float, passes: float
) -> FloatArray:
    """Return the features [P] of a step of these sizes; see `features_of`."""
    segment = bisect_right(KNOTS, tokens)
    row: FloatArray = _RISEN[segment - 1].copy()
    row[segment] = (tokens - KNOTS[segment - 1]) / _WIDTHS[segment - 1]
    row[REQUEST] = batch_size
    row[CONTEXT] = context
    row[PREFILL] = prompts
    row[PASS] = passes
    row[PASS_REQUEST] = passes * batch_size
    if batch_tokens > batch_size:
        row[ANY_DRAFT] = 1.0
        row[ANY_DRAFT_REQUEST] = batch_size
        row[ANY_DRAFT_CONTEXT] = context
    return row


def guess_from_scale(seconds: float, outcome: StepOutcome) -> FloatArray:
    """Return the coefficients [P] of a roofline, from the duration of a single step."""
    passes = max(outcome.draft_depth, 1)
    guess = np.zeros(SIZE)
    guess[PASS] = _PASS_SHARE * seconds / (passes + 5.0)
    verify = seconds - passes * guess[PASS]
    roofline = np.maximum(np.append(TOKENS, TOKENS[-1] + WIDTHS[-1]) / KNEE, 1.0)
    # A prompt's token is as much work as a draft.
    roofline *= verify / max((outcome.batch_tokens + outcome.prefill_tokens) / KNEE, 1.0)
    guess[0] = roofline[0]
    guess[1 : LAST + 1] = np.diff(roofline)
    guess[PREFILL] = guess[LAST] / WIDTHS[-1]
    return guess


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
