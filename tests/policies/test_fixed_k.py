"""off, static and batch_table do what their names say; a drawn K has the propensity recorded."""

import numpy as np
import pytest

from adaptive_spec import Capability, Level, Mode, PolicyError, build_policy
from adaptive_spec.policies.static import StaticOptions, StaticPolicy, propensities
from tests.steps import context

KMAX = 4


def test_off_never_speculates() -> None:
    plan = build_policy("off").plan(context(3))
    assert plan.verify.tolist() == [0, 0, 0]
    assert (plan.draft_depth, plan.mode) == (0, Mode.OFF_WARM)


def test_static_is_the_engines_k_unless_told_otherwise() -> None:
    assert build_policy("static").plan(context(2)).verify.tolist() == [5, 5]
    assert build_policy("static", {"k": 2}).plan(context(2)).verify.tolist() == [2, 2]
    ladder = Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=(0, 1, 3, 5))
    too_deep = StaticPolicy(StaticOptions(k=99))
    assert too_deep.plan(context(2)).draft_depth == 5
    with pytest.raises(PolicyError, match="more than the server's largest K, 5"):
        too_deep.check_engine(ladder)
    assert build_policy("static", {"k": 4}).plan(context(2, capability=ladder)).draft_depth == 3


@pytest.mark.parametrize(("batch", "k"), [(1, 4), (3, 4), (4, 2), (8, 2), (9, 2), (500, 2)])
def test_batch_table_inherits_over_gaps_and_past_its_end(batch: int, k: int) -> None:
    # vLLM 0.32: sizes 3 (a gap) and 9+ take the K of the range before them.
    policy = build_policy("batch_table", {"table": [[1, 2, 4], [4, 8, 2]]}, baselines=True)
    assert policy.plan(context(batch)).verify.tolist() == [k] * batch
    beyond = build_policy("batch_table", {"table": [[1, 8, 9]]}, baselines=True)
    assert beyond.plan(context(batch)).draft_depth == 5  # the engine's own K


@pytest.mark.parametrize("level", list(Level))
def test_recorded_propensities_are_the_frequencies_of_k(level: Level) -> None:
    """E[1 / p] over what ran is the number of K values there are, if p is the true probability."""
    policy = StaticPolicy(StaticOptions(k=2, uniform_fraction=0.5), seed=5)
    engine, depth, plans = Capability(level=level, max_draft_tokens=KMAX), 0, []
    for step in range(1500):
        drafted = KMAX if level is Level.VERIFY else depth
        plans.append(policy.plan(context(8, engine, step=step, draft_available=drafted)))
        depth = plans[-1].draft_depth
    known = [plan for plan in plans if plan.propensity is not None]
    assert 0.99 * len(plans) <= len(known)
    if level is not Level.VERIFY:
        assert plans[0].propensity is None  # nothing was drafted for the first K
    weights = np.array([1.0 / plan.propensity.min() for plan in known])
    error = weights.std() / np.sqrt(len(weights))
    assert abs(weights.mean() - (KMAX + 1)) < 4.0 * error
    k = np.array([int(plan.verify.max()) for plan in known])
    ran = np.bincount(k, minlength=KMAX + 1) / len(known)
    assert ran == pytest.approx([0.1, 0.1, 0.6, 0.1, 0.1], abs=0.05)
    assert [plan.measures for plan in known] == (k != 2).tolist()
    for plan in plans:
        off = plan.draft_depth == 0 and not plan.verify.any()
        assert plan.mode is (Mode.OFF_WARM if off else Mode.ON)


def test_propensities_add_where_several_k_come_to_the_same() -> None:
    chances, limits = np.array([0.1, 0.2, 0.3, 0.4]), np.array([3, 1, 0])
    found = propensities(chances, np.arange(4), limits, np.minimum(limits, 2))
    assert found == pytest.approx([0.3, 0.9, 1.0])
