"""Plans that take drafts of two sources."""

from typing import Any

import numpy as np
import pytest

from adaptive_spec import Capability, Level, Mode, SpecPlan
from adaptive_spec.controller.plan_validation import plan_fault
from tests.policies.planning.test_plans import context

BOTH = {"lookup_available": np.array([4, 0]), "lookup_match": np.array([7, 0])}


def plan(verify: list[int], from_lookup: Any) -> SpecPlan:
    return SpecPlan(
        step=0,
        verify=np.array(verify),
        draft_depth=2,
        mode=Mode.ON,
        reason="",
        from_lookup=from_lookup,
    )


def test_each_request_may_verify_what_its_own_source_has() -> None:
    taken = np.array([True, False])
    assert plan_fault(plan([4, 2], taken), context(0, [1, 2], **BOTH)) == ""
    assert "verify" in plan_fault(plan([4, 2], None), context(0, [1, 2], **BOTH))
    assert "verify" in plan_fault(plan([1, 1], ~taken), context(0, [1, 2], **BOTH))


@pytest.mark.parametrize("wrong", [np.array([1, 0]), [True, False], np.array([True])])
def test_a_choice_that_is_no_boolean_per_request_is_refused(wrong: object) -> None:
    assert "from_lookup" in plan_fault(plan([1, 1], wrong), context(0, [1, 2], **BOTH))


def test_nothing_can_be_taken_from_a_source_that_is_not_there() -> None:
    taken = np.array([True, False])
    assert "from_lookup" in plan_fault(plan([0, 0], taken), context(0, [1, 2]))
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=4)
    assert "from_lookup" in plan_fault(
        plan([0, 0], taken), context(0, [1, 2], capability=uniform, **BOTH)
    )
