"""Slots are bounded by the requests alive and never reused at once; their rows can be reset."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.per_request import RequestSlots, floats, integers


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=300))
def test_live_requests_have_distinct_slots_and_memory_is_bounded(
    events: list[tuple[str, bool]],
) -> None:
    slots = RequestSlots()
    alive: dict[str, int] = {}
    for name, arrives in events:
        if arrives:
            slot = slots.assign(name)
            assert alive.get(name, slot) == slot
            assert slot not in {s for n, s in alive.items() if n != name}
            alive[name] = slot
        else:
            assert slots.release(name) == alive.pop(name, None)
        assert len(slots) == len(alive)
    assert slots.capacity <= 8 + 17


def test_a_freed_slot_is_not_the_next_one_handed_out() -> None:
    slots = RequestSlots()
    first = slots.assign("a")
    slots.release("a")
    assert slots.assign("b") != first


def test_rows_begin_at_their_fill_grow_and_are_reset() -> None:
    array = floats(1.0, 2)
    slots = np.array([3, 500])
    assert array[slots].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    array[slots] = np.array([[2.0, 3.0], [4.0, 5.0]])
    array.reset(np.array([3]))
    assert array[slots].tolist() == [[1.0, 1.0], [4.0, 5.0]]
    counts = integers(0)
    counts[np.array([2])] += 7
    assert counts[np.array([1, 2])].tolist() == [0, 7]
    counts.reset(np.zeros(0, dtype=np.int64))
    assert counts[np.zeros(0, dtype=np.int64)].tolist() == []
