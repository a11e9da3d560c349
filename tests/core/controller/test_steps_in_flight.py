"""Steps come back once, aligned with the requests that are alive, and never add up."""

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec import Mode, SpecPlan
from adaptive_spec.controller.steps_in_flight import StepInFlight, StepsInFlight, finished_step
from adaptive_spec.step import StepContext, StepOutcome
from tests import steps

KMAX = 3
slot_lists = st.lists(st.integers(0, 40), unique=True, max_size=8)


def context(slots: list[int], step: int = 0) -> StepContext:
    """Every entry tells its slot."""
    rows = np.array(slots, dtype=np.int64)
    signal = rows[:, None] + np.arange(KMAX) / 10.0
    return steps.context(
        capability=KMAX,
        step=step,
        slots=rows,
        context_tokens=rows + 100,
        draft_available=rows + 200,
        draft_possible=rows + 300,
        tpot_target=rows + 0.5,
        task=rows + 400,
        temperature=rows + 0.25,
        confidence=signal,
        entropy=signal + 1.0,
        kv_draft_limit=rows + 500,
    )


def plan(slots: list[int], step: int = 0) -> SpecPlan:
    rows = np.array(slots, dtype=np.int64)
    return SpecPlan(
        step=step,
        verify=rows + 600,
        draft_depth=2,
        mode=Mode.ON,
        reason="",
        propensity=rows + 0.125,
        notes=(rows + 700, np.stack([rows, -rows], axis=1)),
        memo="mine",
    )


def outcome(slots: list[int], step: int = 0) -> StepOutcome:
    rows = np.array(slots, dtype=np.int64)
    signal = rows[:, None] + np.zeros(KMAX)
    return steps.outcome(
        steps.context(step=step, slots=rows),
        rows + 10,
        rows + 20,
        emitted=rows + 30,
        batch_size=9,
        batch_tokens=20,
        context_tokens=100,
        draft_depth=2,
        ragged=True,
        confidence=signal,
        entropy=signal,
    )


def arrays(value: msgspec.Struct) -> dict[str, np.ndarray]:
    named = {name: getattr(value, name) for name in value.__struct_fields__}
    return {name: array for name, array in named.items() if isinstance(array, np.ndarray)}


@given(slot_lists, slot_lists)
def test_all_rows_are_those_of_the_outcome_that_were_planned(
    planned: list[int], alive: list[int]
) -> None:
    step = finished_step(context(planned), plan(planned), outcome(alive))
    both = [slot for slot in alive if slot in planned]
    for found, wanted in (
        (step.context, context(both)),
        (step.plan, plan(both)),
        (step.outcome, outcome(both)),
    ):
        expected = arrays(wanted)
        assert arrays(found).keys() == expected.keys()
        for name, array in arrays(found).items():
            assert array.tolist() == expected[name].tolist(), name
    assert list(step.context.request_ids) == context(both).request_ids
    for note, wanted_note in zip(step.plan.notes, plan(both).notes, strict=True):
        assert note.tolist() == wanted_note.tolist()
    assert step.plan.memo == "mine"


def test_nothing_is_copied_while_all_are_alive() -> None:
    seen, made, ran = context([4, 2]), plan([4, 2]), outcome([4, 2])
    step = finished_step(seen, made, ran)
    assert (step.context, step.plan, step.outcome) == (seen, made, ran)


def in_flight(number: int) -> StepInFlight:
    seen, made = context([1], number), plan([1], number)
    return StepInFlight(seen, made, seen, made)


def test_a_step_is_taken_once_and_older_ones_are_given_up() -> None:
    steps = StepsInFlight()
    for number in range(4):
        steps.add(in_flight(number))
    found = steps.pop(2)
    assert found.context.step == 2
    assert steps.pop(2) is None
    assert steps.pop(1) is None
    assert steps.pop(3) is not None


def test_steps_that_never_end_are_not_kept_for_ever() -> None:
    steps = StepsInFlight()
    for number in range(1000):
        steps.add(in_flight(number))
    assert len(steps) < 100
    assert steps.pop(999) is not None


def test_a_new_policy_gets_none_of_the_notes_of_the_one_before() -> None:
    steps = StepsInFlight()
    steps.add(in_flight(0))
    steps.change_policy()
    steps.add(in_flight(1))
    before, after = steps.pop(0), steps.pop(1)
    assert (before.wanted.notes, before.wanted.memo) == ((), None)
    assert after.wanted.memo == "mine"


def test_looked_up_drafts_that_did_not_run_are_not_learned_from() -> None:
    seen, made = context([1]), plan([1])
    wanted = msgspec.structs.replace(made, from_lookup=np.array([True]))
    engines = msgspec.structs.replace(made, from_lookup=None)
    assert StepInFlight(seen, engines, seen, wanted).to_learn_from.from_lookup is None
    assert StepInFlight(seen, wanted, seen, wanted).to_learn_from is wanted
