"""off, static and batch_table do what their names say."""

import pytest

from adaptive_spec import Capability, Level, Mode, build_policy
from tests.steps import context


def test_off_never_speculates() -> None:
    plan = build_policy("off").plan(context(3))
    assert plan.verify.tolist() == [0, 0, 0]
    assert (plan.draft_depth, plan.mode) == (0, Mode.OFF_WARM)


def test_static_is_the_engines_k_unless_told_otherwise() -> None:
    assert build_policy("static").plan(context(2)).verify.tolist() == [5, 5]
    assert build_policy("static", {"k": 2}).plan(context(2)).verify.tolist() == [2, 2]
    assert build_policy("static", {"k": 99}).plan(context(2)).draft_depth == 5


def test_static_takes_the_rung_below_on_a_ladder() -> None:
    ladder = Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=(0, 1, 3, 5))
    assert build_policy("static", {"k": 4}).plan(context(2, capability=ladder)).draft_depth == 3


@pytest.mark.parametrize(("batch", "k"), [(1, 4), (2, 4), (3, 4), (4, 2), (8, 2), (9, 2), (500, 2)])
def test_batch_table_inherits_over_gaps_and_past_its_end(batch: int, k: int) -> None:
    # vLLM 0.32: sizes 3 (a gap) and 9+ take the K of the range before them.
    policy = build_policy("batch_table", {"table": [[1, 2, 4], [4, 8, 2]]}, baselines=True)
    assert policy.plan(context(batch)).verify.tolist() == [k] * batch


def test_batch_table_is_clamped_to_the_engines_k() -> None:
    policy = build_policy("batch_table", {"table": [[1, 8, 9]]}, baselines=True)
    assert policy.plan(context(2)).draft_depth == 5
