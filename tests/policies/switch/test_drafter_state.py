"""How long requests alive will live, and what they would lose without a drafter."""

from typing import NamedTuple

import numpy as np
import pytest

from adaptive_spec.policies.switch.drafter_state import OutputLengths, stranded_seconds
from adaptive_spec.step import FloatArray, IntArray


def after(lengths: list[int], alive: list[int]) -> tuple[OutputLengths, IntArray]:
    """Requests of these lengths have ended, others are alive and have emitted so much."""
    found = OutputLengths()
    for length in lengths:
        found.emitted(np.array([0]), np.array([length]))
        found.ended(np.array([0]))
    slots = np.arange(1, 1 + len(alive))
    found.emitted(slots, np.array(alive))
    return found, slots


def test_requests_of_one_length_end_together() -> None:
    lengths, slots = after([64] * 300, [10] * 4)
    later = lengths.alive(slots, np.array([1.0, 30.0, 100.0, 1000.0]))
    assert later[:2] == pytest.approx([4.0, 4.0], abs=0.2)
    assert later[2:] == pytest.approx([0.0, 0.0], abs=0.1)


def test_who_has_lived_long_lives_long_where_lengths_have_a_heavy_tail() -> None:
    random = np.random.default_rng(0)
    drawn = np.exp(3.5 + 1.2 * random.standard_normal(500)).astype(int) + 1
    young, slots = after(drawn.tolist(), [4])
    old, _ = after(drawn.tolist(), [400])
    ahead = np.array([200.0])
    assert old.alive(slots, ahead)[0] > 3.0 * young.alive(slots, ahead)[0]
    for age in (4, 100, 400):
        lengths, _ = after(drawn.tolist(), [age])
        true = np.mean(drawn > age + 200.0) / np.mean(drawn > age)
        assert lengths.alive(slots, ahead)[0] == pytest.approx(true, abs=0.12)


def test_where_nothing_is_known_half_survive_a_doubling() -> None:
    lengths, slots = after([], [64] * 100)
    assert lengths.alive(slots, np.array([64.0]))[0] == pytest.approx(50.0, rel=0.35)


def test_the_lengths_of_now_outweigh_those_of_long_ago() -> None:
    lengths, slots = after([16] * 2000 + [400] * 2000, [32] * 10)
    assert lengths.alive(slots, np.array([200.0]))[0] > 9.0


class Saving(NamedTuple):
    """Drafts save a second per token up to a batch of four, and nothing above."""

    drafted_slots: IntArray

    def saved_seconds(self, batch_sizes: list[int]) -> FloatArray:
        return np.array([1.0 if batch <= 4 else 0.0 for batch in batch_sizes])


def test_the_loss_is_that_of_the_loads_in_which_requests_end() -> None:
    lengths, slots = after([64] * 300, [32] * 8)
    assert stranded_seconds(Saving(slots), lengths) < 25.0  # all eight end at once
    uneven = np.geomspace(8, 512, 300).astype(int).tolist()
    lengths, slots = after(uneven, [32] * 8)
    assert stranded_seconds(Saving(slots), lengths) > 60.0
    assert stranded_seconds(Saving(slots[:0]), lengths) == 0.0
