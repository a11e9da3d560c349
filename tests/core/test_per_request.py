"""Slots are bounded by the requests alive, and never reused at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.per_request import RequestSlots


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
