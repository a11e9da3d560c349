"""What counts as timed, and which K is missing."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_spec.policies.step_time.coverage import TimedLoads, exploration_ladder
from adaptive_spec.step import Capability, Level, StepOutcome

FULL = Capability(level=Level.FULL, max_draft_tokens=6)


def step(batch: int, drafts: int, prefill: int = 0) -> StepOutcome:
    nobody = np.zeros(0, dtype=np.int64)
    return StepOutcome(
        step=0,
        slots=nobody,
        verified=nobody,
        accepted=nobody,
        emitted=nobody,
        batch_size=batch,
        batch_tokens=batch + drafts,
        context_tokens=100,
        prefill_tokens=prefill,
        draft_depth=6,
        ragged=False,
        seconds=0.1,
    )


def timed(*steps: StepOutcome) -> TimedLoads:
    loads = TimedLoads(FULL)
    for each in steps:
        loads.count(each)
    return loads


def test_a_load_lacks_the_k_of_the_ladder_it_was_not_timed_with() -> None:
    loads = timed(step(8, 0), step(8, 8), step(7, 21), step(8, 8))
    assert loads.missing(8, 1) == loads.missing(5, 1) == [6]
    assert loads.missing(8, 2) == [0, 3, 6]
    assert loads.missing(9, 1) == exploration_ladder(FULL) == [0, 1, 3, 6]


def test_steps_of_prompts_and_of_few_drafts_tell_no_k() -> None:
    assert timed(step(8, 8, prefill=65), step(8, 3)).missing(8, 1) == [0, 1, 3, 6]
    assert timed(step(8, 8, prefill=64)).missing(8, 1) == [0, 3, 6]


def test_short_outputs_hide_neither_k_0_nor_kmax() -> None:
    """A prompt in nearly every step, requests near their end: as in a closed loop of real ones."""
    loads = timed(step(16, 0, prefill=45), step(16, 88, prefill=20))
    assert loads.missing(16, 1) == [1, 3]


def test_a_mean_between_two_k_tells_neither() -> None:
    half = timed(*(step(128, 64) for _ in range(10)))
    assert half.missing(128, 1) == [0, 1, 3, 6]
    assert timed(step(128, 128 + 30)).missing(128, 1) == [0, 3, 6]


def test_loads_are_complete_with_every_k_of_the_ladder() -> None:
    loads = timed(*(step(4, 4 * k) for k in (0, 1, 3, 6) for _ in range(2)), step(40, 0))
    assert loads.complete(2) == 1
    assert loads.complete(3) == 0


@pytest.mark.parametrize("ladder", [(0, 2, 4), (1, 5)])
def test_a_given_ladder_is_timed_as_it_is(ladder: tuple[int, ...]) -> None:
    uniform = Capability(level=Level.UNIFORM, max_draft_tokens=6, ladder=ladder)
    assert tuple(exploration_ladder(uniform)) == ladder
    assert tuple(TimedLoads(uniform).missing(3, 1)) == ladder
