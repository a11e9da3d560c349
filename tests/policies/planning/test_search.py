"""Drafts are sorted as Python sorts them, and the prefix that is admitted is the best of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_spec.policies.planning.search import admit, rank


@settings(max_examples=3 * settings().max_examples)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(0, 70) | st.integers(200, 220),
    kmax=st.integers(1, 8),
    coarse=st.booleans(),
)
def test_the_sort_and_the_search_are_those_in_plain_python(
    seed: int, batch: int, kmax: int, coarse: bool
) -> None:
    """Batches of 200 and more have the drafts from which another way of sorting runs."""
    random = np.random.default_rng(seed)
    hazard = random.random((kmax, batch))
    if coarse:  # many exact ties
        hazard = np.round(hazard * 4) / 4
    values = np.ascontiguousarray(np.cumprod(hazard, axis=0))
    possible = random.integers(0, kmax + 1, batch)
    available = random.integers(0, kmax + 1, batch)
    verify = random.uniform(1.0, 1.0 + random.random(), batch * kmax + 1)
    drafting = np.cumsum(random.uniform(0.0, 0.1, kmax + 1))
    limit = np.maximum(possible, available)

    drafts = [(j, i) for i in range(batch) for j in range(limit[i])]
    drafts.sort(key=lambda at: (-np.float32(values[at]), *at))
    position, request, value = rank(values, limit)
    assert list(zip(position.tolist(), request.tolist(), strict=True)) == drafts
    assert value.tolist() == [values[at] for at in drafts]

    def ratios(usable: list[tuple[int, int]], depth: int) -> np.ndarray:
        total = batch + np.cumsum([0.0, *(values[at] for at in usable)])
        return total / (verify[: len(total)] + drafting[depth])

    best = [
        ratios([(j, i) for j, i in drafts if j < min(depth, possible[i])], depth).max()
        for depth in range(kmax + 1)
    ]
    costs = float(batch), verify, drafting, np.arange(kmax + 1)
    chosen, depth, admitted, ratio = admit(position, request, value, possible, available, *costs)
    assert ratio == pytest.approx(max(best))
    assert best[depth] == pytest.approx(ratio)
    usable = [(j, i) for j, i in drafts if j < available[i]]
    number, each = int(chosen.sum()), ratios(usable, depth)
    assert each[number] == pytest.approx(each.max())
    assert chosen.tolist() == [[i for _, i in usable[:number]].count(i) for i in range(batch)]
    assert admitted == pytest.approx(sum(values[at] for at in usable[:number]))


def test_drafts_are_ranked_by_value_then_position_then_request() -> None:
    values = np.array([[0.5, 0.9, 0.5], [0.5, 0.1, -0.0]])
    position, request, value = rank(values, np.array([2, 1, 2]))
    assert position.tolist() == [0, 0, 0, 1, 1]
    assert request.tolist() == [1, 0, 2, 0, 2]
    assert value.tolist() == [0.9, 0.5, 0.5, 0.5, 0.0]


def test_narrow_strided_integers_are_taken() -> None:
    limit = np.repeat(np.array([2, 1]), 3).astype(np.int32)[::3]
    position, _, _ = rank(np.array([[0.5, 0.9], [0.4, 0.1]]), limit)
    assert position.tolist() == [0, 0, 1]
