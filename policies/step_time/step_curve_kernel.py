"""Step times over the number of verified drafts."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import kernel
from adaptive_spec.step import FloatArray


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
    heights = np.zeros(len(knots))
    np.cumsum(rises, out=heights[1:])
    slopes = np.append(np.diff(heights) / np.diff(knots), last_slope)
    segment = np.searchsorted(knots, tokens, side="right") - 1
    curve: FloatArray = slopes[segment] * (tokens - knots[segment]) + heights[segment]
    curve += fixed
    curve[1:] += any_draft
    return np.maximum(curve, 1e-6, out=curve)
