from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu.arms import GOODPUT, OFF, Arm, arm, tuned_schedule
from benchmarks.gpu.setups import KEY

NAMES = (
    *("none", "static0", "static5", "schedule", "adaptive", "own3", "ours", "ours-cold"),
    *("ours-off", "fixed5", "ladder", "quiet", "static5-sync", "fixed5-sync"),
)


@pytest.mark.parametrize("name", NAMES)
def test_every_arm_runs_on_an_engine_that_there_is(name: str) -> None:
    assert KEY.fullmatch(arm(name, "eagle").engine)


def test_an_arm_says_how_its_engine_is_set() -> None:
    assert arm("none", "eagle") == Arm("none")
    assert arm("static2", "eagle") == Arm("eagle-vllm", static=2)
    assert arm("schedule", "draft_model") == Arm("draft_model-vllm", scheduled=True)
    assert arm("own3", "eagle") == Arm("eagle-k3")
    assert arm("ours", "eagle") == Arm("eagle-ours", switch=GOODPUT)
    assert arm("ours-cold", "eagle") == Arm("eagle-ours", switch=GOODPUT, fresh=True)
    assert arm("ours-off", "eagle") == Arm("eagle-ours", switch=OFF)
    fixed = arm("fixed5-sync", "eagle")
    assert fixed.engine == "eagle-ours-sync"
    assert fixed.switch == {"mode": "on", "policy": "static", "options": {"k": 5}}


def test_an_unknown_arm_is_named() -> None:
    with pytest.raises(ValueError, match="'best' is no arm"):
        arm("best", "eagle")


@given(
    rates=st.dictionaries(
        st.integers(1, 300),
        st.dictionaries(
            st.integers(0, 8), st.lists(st.floats(1, 1e4), min_size=1), min_size=1, max_size=4
        ),
        min_size=1,
        max_size=6,
    ),
    most=st.integers(1, 300),
)
def test_a_tuned_schedule_covers_every_batch_with_the_best_k(
    rates: dict[int, dict[int, list[float]]], most: int
) -> None:
    table = tuned_schedule(rates, most)
    assert table is not None
    assert table[0][0] == 1
    assert table[-1][1] >= most
    assert all(last + 1 == first for (_, last, _), (first, _, _) in pairwise(table))
    for (_, _, k), load in zip(table, sorted(rates), strict=True):
        means = {each: sum(some) / len(some) for each, some in rates[load].items()}
        assert means[k] == max(means.values())


def test_nothing_measured_is_no_schedule() -> None:
    assert tuned_schedule({}, 8) is None
    assert tuned_schedule({4: {}}, 8) is None
