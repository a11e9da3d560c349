"""Plans that cannot run and outcomes that no engine can have run are found out."""

from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec import Capability, Config, Controller, Level, Mode, SpecPlan
from adaptive_spec.controller.plan_validation import (
    outcome_fault,
    plan_fault,
    with_usable_depth,
)
from adaptive_spec.policy import build_policy
from adaptive_spec.step import StepOutcome
from tests import steps
from tests.core.controller.answers import PATIENT
from tests.policies.planning.test_step_forecast import context

ENGINE = Capability(level=Level.FULL, max_draft_tokens=4)
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


@pytest.mark.parametrize(
    ("possible", "prompts", "depth"),
    [
        ([], 0, 0),  # a step of prompts that want one token each
        ([], 2, 2),
        ([], None, 4),  # the engine does not say
        ([0, 1], 0, 1),
        ([0, 1], 3, 3),
        ([4, 0], 0, 4),
    ],
)
@pytest.mark.parametrize("policy", ["bandit", "goodput", "regression", "static"])
def test_no_policy_drafts_deeper_than_a_request_can_use(
    policy: str, possible: list[int], prompts: int | None, depth: int
) -> None:
    target = Controller(build_policy(policy, {}), ENGINE, Config(fail_open=PATIENT))
    batch = len(possible)
    found = target.plan(
        steps.context(
            batch, ENGINE, draft_possible=possible, draft_available=0, prompt_possible=prompts
        )
    )
    assert found.mode is not Mode.ENGINE
    assert found.draft_depth <= depth


def test_depth_is_cut_to_what_the_ladder_has() -> None:
    ladder = Capability(level=Level.UNIFORM, max_draft_tokens=4, ladder=(0, 2, 4))
    asked = plan([], None)
    for prompts, depth in ((0, 0), (1, 2), (3, 2)):
        seen = steps.context(0, ladder, prompt_possible=prompts)
        assert with_usable_depth(asked, seen).draft_depth == depth


def outcome(**changes: Any) -> StepOutcome:
    before = steps.context(slots=[5, 0], step=1)
    fields = {"batch_size": 3, "batch_tokens": 9, "context_tokens": 60} | changes
    return msgspec.structs.replace(steps.outcome(before, [4, 0], [4, 0]), **fields)


@pytest.mark.parametrize("seconds", [0.01, float("nan"), -1.0])
def test_a_possible_outcome_passes_whatever_was_timed(seconds: float) -> None:
    assert outcome_fault(outcome(seconds=seconds), ENGINE) == ""


def test_an_outcome_of_nobody_passes() -> None:
    none = np.zeros(0, dtype=np.int64)
    empty = {"slots": none, "verified": none, "accepted": none, "emitted": none}
    assert outcome_fault(outcome(**empty, batch_size=0, batch_tokens=0), ENGINE) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"accepted": np.array([4, 1])},
        {"accepted": np.array([-1, 0])},
        {"verified": np.array([5, 0])},
        {"emitted": np.array([5, -1])},
        {"slots": np.array([-1, 0])},
        {"slots": np.array([5])},
        {"batch_size": 1},
        {"batch_tokens": 2},
        {"context_tokens": -1},
        {"prefill_tokens": -1},
        {"draft_depth": 5},
        {"draft_depth": -1},
    ],
)
def test_an_impossible_outcome_is_described(changes: dict[str, Any]) -> None:
    assert outcome_fault(outcome(**changes), ENGINE)
