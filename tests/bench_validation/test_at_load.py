"""Tables of speculation at load: what is fitted, what is validated, and some cells of them."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.validation import at_load
from benchmarks.validation.row import Row, compared


def test_no_cell_is_both_fitted_and_validated() -> None:
    seen = [
        (table.hardware, table.name.removesuffix(", one request"), *row[:2])
        for table in at_load.published()
        for row in table.rows
    ]
    assert len(seen) == len(set(seen))
    assert {table.role for table in at_load.published()} == {"fit", "validate"}


def test_every_table_has_an_address_and_a_date() -> None:
    for table in at_load.published():
        assert table.address.startswith("https://")
        assert table.measured
    at_64 = [table for table in at_load.published() if any(row[0] >= 64 for row in table.rows)]
    assert len(at_64) >= 6


@pytest.fixture(scope="module")
def a100_at_64() -> list[Row]:
    (table,) = [each for each in at_load.published() if each.name.endswith("rag")]
    cells = tuple(row for row in table.rows if row[0] == 64)
    return at_load.rows_of(msgspec.structs.replace(table, rows=cells))


def test_an_a100_at_64_clients_says_off_where_the_table_does(a100_at_64: list[Row]) -> None:
    (row,) = a100_at_64
    assert row.published < 1.0
    assert row.simulated < 1.0
    assert abs(row.error) < at_load.BOUND


def cells(*simulated: float) -> list[Row]:
    """Cells of 64 clients, K = 1, 2, ..., published as 1.1, 1.2 and 0.9."""
    return [
        compared("T", f"64 clients, K = {k}", published, ratio, bound=at_load.BOUND)
        for k, (published, ratio) in enumerate(zip((1.1, 1.2, 0.9), simulated, strict=True), 1)
    ]


def verdicts(rows: list[Row]) -> list[bool]:
    return [check.passed for check in at_load.checks(rows)]


def test_a_table_that_is_reproduced_passes_every_check() -> None:
    assert verdicts(cells(1.1, 1.2, 0.9)) == [True, True, True, True]


def test_a_bias_fails_where_every_cell_passes() -> None:
    assert verdicts(cells(1.15, 1.25, 0.95)) == [True, False, True, True]


def test_a_wrong_best_k_and_a_missed_off_fail() -> None:
    assert verdicts(cells(1.2, 1.1, 0.9)) == [True, True, False, True]
    assert verdicts(cells(1.05, 1.14, 1.0))[3] is False


def test_k_is_right_too_where_the_best_is_not_to_speculate() -> None:
    low = [compared("T", "64 clients, K = 1", 0.9, 0.95, bound=at_load.BOUND)]
    assert verdicts(low)[2] is True
