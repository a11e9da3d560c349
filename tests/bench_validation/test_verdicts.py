from benchmarks.validation import (
    draft_length_audit,
    tables,
)
from benchmarks.validation.row import Row, cells_within, compared, mean_within


def row(published: float, simulated: float, label: str = "a row", **more: object) -> Row:
    return compared("V4", label, published, simulated, **{"bound": 0.10, **more})


def test_a_row_outside_its_bound_fails_the_table() -> None:
    assert tables.judged("V4", "", [row(1.0, 1.05)]).passed is True
    assert tables.judged("V4", "", [row(1.0, 1.05), row(1.0, 1.11)]).passed is False
    assert tables.judged("V4", "", [row(1.0, 0.89)]).passed is False


def test_a_table_in_which_nothing_counts_does_not_pass() -> None:
    assert tables.judged("V4", "", [row(1.0, 1.0, counted=False)]).passed is False
    assert tables.judged("V4", "", []).passed is False
    assert not mean_within([], 0.07, "").passed


def test_the_mean_can_fail_where_every_cell_passes() -> None:
    rows = [row(1.0, 1.08), row(1.0, 0.92)]
    assert cells_within(rows).passed
    assert not mean_within(rows, 0.07, "").passed


def by_k(simulated: dict[int, float]) -> list[Row]:
    published = {1: 1.31, 2: 1.38, 3: 1.27, 4: 1.21}
    return [
        compared("V3", f"batch {batch}, K = {k}", published[k], simulated[k], bound=0.15)
        for batch in (8, 32, 64)
        for k in published
    ]


def test_a_best_k_that_costs_too_much_fails() -> None:
    right = by_k({1: 1.30, 2: 1.40, 3: 1.30, 4: 1.20})
    wrong = by_k({1: 1.40, 2: 1.39, 3: 1.30, 4: 1.20})
    assert all(check.passed for check in draft_length_audit.checks(right))
    assert [check.passed for check in draft_length_audit.checks(wrong)] == [
        True,
        False,
        False,
        False,
    ]
