"""`static` with draws: the recorded propensities are the probabilities that K had."""

import numpy as np
import pytest

from adaptive_spec import Level
from adaptive_spec.policies.static import StaticOptions, StaticPolicy, propensities
from adaptive_spec.policy import Policy
from tests.policies.finished_steps import KMAX, context, finished


def drive(policy: Policy, steps: int, *, delay: int = 0, level: Level = Level.FULL) -> list:
    plans, waiting, depth = [], [], 0
    for step in range(steps):
        now = context(step, KMAX if level is Level.VERIFY else depth, level)
        plan = policy.plan(now)
        depth = plan.draft_depth
        plans.append(plan)
        waiting.append(finished(now, plan))
        if len(waiting) > delay:
            policy.observe(waiting.pop(0))
    return plans


@pytest.mark.parametrize("level", list(Level))
def test_recorded_propensities_are_the_frequencies_of_k(level: Level) -> None:
    """E[1 / p] over what ran is the number of K values there are, if p is the true probability."""
    policy = StaticPolicy(StaticOptions(k=2, uniform_fraction=0.5), seed=5)
    plans = drive(policy, 1500, level=level)
    known = [plan for plan in plans if plan.propensity is not None]
    assert len(known) >= 0.99 * len(plans)
    weights = np.array([1.0 / plan.propensity.min() for plan in known])
    error = weights.std() / np.sqrt(len(weights))
    assert abs(weights.mean() - (KMAX + 1)) < 4.0 * error
    ran = np.bincount([int(plan.verify.max()) for plan in known], minlength=KMAX + 1) / len(known)
    assert ran == pytest.approx([0.1, 0.1, 0.6, 0.1, 0.1], abs=0.05)


def test_without_draws_nothing_is_recorded() -> None:
    assert all(plan.propensity is None for plan in drive(StaticPolicy(StaticOptions(k=2)), 50))


def test_propensities_add_where_several_k_come_to_the_same() -> None:
    limits = np.array([3, 1, 0])
    found = propensities(
        np.array([0.1, 0.2, 0.3, 0.4]), np.arange(4), limits, np.minimum(limits, 2)
    )
    assert found == pytest.approx([0.3, 0.9, 1.0])
