"""Places of audit blocks: the stated share, never beside each other, and nobody's choice."""

from itertools import groupby

import pytest

from adaptive_spec.audit.blocks import EDGE_STEPS, Blocks, Placed
from adaptive_spec.config import Audit

STEPS = 24


def places(share: float, number: int, seed: int = 0, cold: range = range(0)) -> list[Placed | None]:
    blocks = Blocks(Audit(share=share, arms=("engine", "none")), seed, STEPS)
    return [blocks.place(cold=step in cold) for step in range(number)]


@pytest.mark.parametrize("share", [0.01, 0.02, 0.1, 0.25])
def test_blocks_take_the_stated_share_of_the_steps(share: float) -> None:
    number = 200 * round(STEPS / share)
    placed = [each for each in places(share, number) if each]
    inside = [each for each in placed if each.window == "block"]
    assert len(inside) == share * number
    assert {each.arm for each in inside} == {"engine", "none"}
    assert {each.arm for each in placed if each.window != "block"} == {"policy"}


@pytest.mark.parametrize("share", [0.02, 0.25])
def test_each_block_has_whole_windows_on_both_sides_of_its_own(share: float) -> None:
    placed = [each for each in places(share, 200_000) if each]
    runs = [
        (block, [(window, len(list(same))) for window, same in groupby(each, lambda p: p.window)])
        for block, each in groupby(placed, lambda p: p.block)
    ]
    whole = [("before", STEPS), ("block", STEPS), ("after", STEPS)]
    assert len(runs) > 100
    assert all(windows == whole for _, windows in runs[:-1])


def test_the_first_steps_of_each_window_are_left_out() -> None:
    placed = [each for each in places(0.25, 10_000) if each]
    for _, window in groupby(placed, lambda p: (p.block, p.window)):
        edges = [each.edge for each in window]
        assert edges == ([True] * EDGE_STEPS + [False] * STEPS)[: len(edges)]


def test_places_follow_from_the_seed_and_vary_from_frame_to_frame() -> None:
    assert places(0.1, 5000) == places(0.1, 5000)
    assert places(0.1, 5000) != places(0.1, 5000, seed=1)
    frame = round(STEPS / 0.1)
    placed = places(0.1, 100 * frame)
    starts = [
        step % frame
        for step, each in enumerate(placed)
        if each and each.window == "block" and (placed[step - 1] or each).window == "before"
    ]
    assert len(set(starts)) > 50
    assert STEPS <= min(starts) < 2 * STEPS
    assert frame - 3 * STEPS < max(starts) <= frame - 2 * STEPS


def test_no_block_begins_while_requests_have_lost_the_drafter() -> None:
    cold = range(1000, 3000)
    placed = places(0.25, 6000, cold=cold)
    begun = [step for step, each in enumerate(placed) if each and each.window == "before"]
    assert not set(begun) & set(cold)
    first = next(step for step in begun if step >= cold.stop)
    assert [each.window for each in placed[first : first + 2 * STEPS]] == (
        ["before"] * STEPS + ["block"] * STEPS
    )
    blocks = Blocks(Audit(share=0.25), 0, STEPS)
    for step in range(6000):
        blocks.place(cold=step in cold)
    assert (blocks.steps, blocks.cold_steps) == (6000, 2000)


def test_a_share_of_0_places_nothing() -> None:
    assert set(places(0.0, 1000)) == {None}
