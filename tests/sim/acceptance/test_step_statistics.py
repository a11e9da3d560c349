import pytest

from adaptive_spec.sim.acceptance.data import hazards, mean_accepted, steps_of

from .fake_records import data_of

TWO = data_of([2, 1, 0, 0, 3], [1, 0, 0])


@pytest.mark.parametrize(
    ("k", "begin", "accepts"),
    [(0, list(range(8)), [0] * 8), (1, [0, 2, 3, 4, 5, 7], [1, 0, 0, 1, 1, 0])],
)
def test_steps_begin_where_the_step_before_ended(k, begin, accepts):
    starts, accepted = steps_of(TWO, k)
    assert (starts.tolist(), accepted.tolist()) == (begin, accepts)


@pytest.mark.parametrize("k", [-1, 9])
def test_a_k_the_data_does_not_know_is_refused(k):
    with pytest.raises(ValueError, match=r"leaves 0\.\.8"):
        steps_of(TWO, k)


def test_mean_accepted_counts_steps_not_positions():
    assert mean_accepted(TWO, 1) == pytest.approx(3 / 6)
    assert mean_accepted(TWO, 2) == pytest.approx((2 + 0 + 2 + 1 + 0) / 5)


def test_hazards_are_those_of_steps_that_reached_the_position():
    _, accepted = steps_of(TWO, 3)
    found, reached = hazards(accepted, 3)
    assert reached.tolist() == [5, 3, 2]
    assert found.tolist() == pytest.approx([3 / 5, 2 / 3, 1 / 2])
