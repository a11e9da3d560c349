"""Price of a draft: the survival at which verifying one more pays."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.planning.step_forecast import StepForecast
from adaptive_spec.step import FloatArray


def verify_price(forecast: StepForecast) -> float:
    """Goodput times the verify time of one draft more: the survival at which it pays."""
    drafts = int(forecast.best.verify.sum())
    most = len(forecast.verify_seconds) - 1
    around = max(drafts // 2, forecast.context.batch_size // 4, 1)
    # From 1 on: that the first draft is dear is no reason against the others.
    low = max(drafts - around, 1)
    high = min(max(drafts + around, low + 1), most)
    if high <= low:
        return 0.0
    slope = float(forecast.verify_seconds[high] - forecast.verify_seconds[low]) / (high - low)
    return forecast.best.goodput * slope


def verify_prices(forecast: StepForecast) -> FloatArray:
    """Return the survival at which a draft pays, by position [Kmax], not falling.

    Of a single request the position is the number of drafts, so that each has a price of its
    own, where a kernel or a captured size makes one dearer than the next. The first counts as
    the second, and what rises less than before is taken together (the greatest convex curve
    below the step times), since nobody stops where going on is cheaper.
    """
    kmax = len(forecast.survival)
    if forecast.context.batch_size > 1 or kmax < 2:
        return np.full(kmax, verify_price(forecast))
    slopes = convex_slopes(forecast.verify_seconds[1:])
    return forecast.best.goodput * np.concatenate((slopes[:1], slopes))


def convex_slopes(curve: FloatArray) -> FloatArray:
    """Slopes [N - 1], not falling, of the greatest convex function below these N values."""
    corners = [0]
    for here in range(1, len(curve)):
        while len(corners) > 1:
            first, second = corners[-2], corners[-1]
            before = (curve[second] - curve[first]) / (second - first)
            if (curve[here] - curve[second]) / (here - second) > before:
                break
            corners.pop()
        corners.append(here)
    widths = np.diff(corners)
    slopes: FloatArray = np.repeat(np.diff(curve[corners]) / widths, widths)
    return slopes
