"""Cost profiles: the prior of the step times where one is configured, and back."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.cost_profile import CostProfile, extended
from adaptive_spec.policies.gaussian import saved_gaussian
from adaptive_spec.policies.step_features import (
    ANY,
    ANY_CONTEXT,
    CONTEXT,
    KNOTS,
    PASS_REQUEST,
    PASSES,
    PREFILL,
    RAGGED,
    REQUEST,
    SIZE,
)
from adaptive_spec.policies.step_times import FIRST_NOISE, SavedStepTimes, StepTimes

LEAST_SECONDS = 1e-6
"""Least verify time of a profile, which may not be 0."""


def prior_of_profile(profile: CostProfile, times: StepTimes) -> SavedStepTimes:
    """Return the belief about step times that a profile gives rise to.

    The profile is the mean. It is trusted no more than a roofline: with a third of the variance a
    profile whose tokens are too cheap is not unlearned, as the common level takes the misfit.
    A falling verify time counts as level, since c >= 0. A cost per request of any draft is left to
    the other coefficients.

    Args:
        profile: seconds of the parts of a step.
        times: of this engine before its first step, for the shape of the uncertainty.
    """
    unit = float(extended(profile, KNOTS[:1])[0])
    mean = np.zeros(SIZE)
    mean[0] = unit
    heights = extended(profile, np.append(KNOTS, 2.0 * KNOTS[-1]))
    mean[1 : len(KNOTS) + 1] = np.diff(np.maximum.accumulate(heights))
    mean[REQUEST], mean[CONTEXT] = profile.per_request, profile.per_context_token
    mean[PREFILL] = profile.per_prefill_token
    mean[PASSES], mean[PASS_REQUEST] = profile.draft_pass, profile.draft_pass_per_request
    mean[ANY], mean[ANY_CONTEXT] = profile.any_draft, profile.any_draft_per_context_token
    mean /= unit
    mean[RAGGED] = times.mean[RAGGED]
    parts = saved_gaussian(mean, times.covariance, mean, times.covariance)
    return SavedStepTimes(parts, unit, FIRST_NOISE**2, 0)


def profile_of(times: StepTimes) -> CostProfile:
    """Return what is believed of step times as a profile; at least one step must be timed."""
    c = times.scale * times.coefficients
    heights = c[0] + np.append(0.0, np.cumsum(c[1 : len(KNOTS) + 1]))
    return CostProfile(
        tokens=[int(each) for each in (*KNOTS, 2.0 * KNOTS[-1])],
        seconds=np.maximum(heights, LEAST_SECONDS).tolist(),
        per_request=float(c[REQUEST]),
        per_context_token=float(c[CONTEXT]),
        per_prefill_token=float(c[PREFILL]),
        draft_pass=float(c[PASSES]),
        draft_pass_per_request=float(c[PASS_REQUEST]),
        any_draft=float(c[ANY]),
        any_draft_per_context_token=float(c[ANY_CONTEXT]),
    )
