"""What profiles say of the range in which they were compared."""

from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.sim.hardware.validity import UNKNOWN_ERROR, expected_error, validities

INSIDE = {"clients": 64, "context": 600.0, "k": 5}


def test_inside_the_range_the_error_is_that_of_the_cells() -> None:
    error, line = expected_error("a100-llama-8b", **INSIDE)
    assert 0.0 < error < 0.15
    assert line == ""


def test_each_way_out_of_the_range_is_named_in_one_line() -> None:
    for name, value, said in (
        ("clients", 128, "128 requests at once"),
        ("context", 4000.0, "contexts of 4,000 tokens"),
        ("k", 8, "K up to 8"),
    ):
        error, line = expected_error("a100-llama-8b", **{**INSIDE, name: value})
        assert error >= UNKNOWN_ERROR
        assert line.endswith(f"this run has {said}")
        assert "\n" not in line


def test_a_profile_without_a_comparison_says_so() -> None:
    error, line = expected_error("l40s-llama-8b", **INSIDE)
    assert error == UNKNOWN_ERROR
    assert "never held against" in line


def test_every_name_is_a_profile_with_cells_held_out() -> None:
    for name, known in validities().items():
        assert hardware_profile(name).model
        assert known.cells > 0
        assert known.engine
        assert abs(known.mean_error) <= known.error
