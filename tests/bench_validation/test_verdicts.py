from __future__ import annotations

import pytest

from adaptive_spec.errors import ConfigError
from benchmarks.validation import (
    draft_length_audit,
    eagle3_by_batch,
    no_speculation,
    tables,
)
from benchmarks.validation.row import Row, cells_within, compared, mean_within


def row(published: float, simulated: float, label: str = "a row", **more: object) -> Row:
    return compared("V4", label, published, simulated, **{"bound": 0.10, **more})


def test_an_error_is_relative_unless_said_otherwise() -> None:
    assert row(2.0, 2.1).error == pytest.approx(0.05)
    assert row(0.5, 0.6, relative=False).error == pytest.approx(0.1)


def test_a_row_outside_its_bound_fails_the_table() -> None:
    assert tables.judged("V4", "", [row(1.0, 1.05)]).passed is True
    assert tables.judged("V4", "", [row(1.0, 1.05), row(1.0, 1.11)]).passed is False
    assert tables.judged("V4", "", [row(1.0, 0.89)]).passed is False


def test_the_worst_row_and_the_number_of_misses_are_named() -> None:
    check = cells_within([row(1.0, 1.05), row(1.0, 1.2, "bad"), row(1.0, 1.3, "worse")])
    assert not check.passed
    assert "worse" in check.found
    assert "2 of 3" in check.found


def test_a_row_that_does_not_count_fails_nothing() -> None:
    rows = [row(1.0, 1.05), row(1.0, 3.0, counted=False)]
    assert tables.judged("V4", "", rows).passed is True
    assert mean_within(rows, 0.07, "").passed


def test_a_table_in_which_nothing_counts_does_not_pass() -> None:
    assert tables.judged("V4", "", [row(1.0, 1.0, counted=False)]).passed is False
    assert tables.judged("V4", "", []).passed is False
    assert not mean_within([], 0.07, "").passed


def test_the_mean_can_fail_where_every_cell_passes() -> None:
    rows = [row(1.0, 1.08), row(1.0, 0.92)]
    assert cells_within(rows).passed
    assert not mean_within(rows, 0.07, "").passed


def line(simulated_at_32: float) -> list[Row]:
    published = {"16": (1.02, 1.03), "32": (0.94, simulated_at_32)}
    return [
        compared("V2", f"H100 EAGLE, batch {batch}", *ratios, bound=0.15)
        for batch, ratios in published.items()
    ]


def test_a_cell_on_the_wrong_side_of_one_fails() -> None:
    assert all(check.passed for check in eagle3_by_batch.checks(line(0.97)))
    failed = [check for check in eagle3_by_batch.checks(line(1.0)) if not check.passed]
    assert len(failed) == 1
    assert "batch 32" in failed[0].found


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


def pairs(medians: list[float]) -> list[Row]:
    return [
        compared(f"pair {number}", "tpot", 10.0, 10.0 * (1.0 + error))
        for number, error in enumerate(medians)
    ]


def test_three_pairs_within_the_median_are_needed_and_no_pair_may_miss_it() -> None:
    def passed(medians: list[float]) -> bool:
        return all(check.passed for check in no_speculation.checks(pairs(medians)))

    assert passed([0.01, 0.05, 0.09])
    assert not passed([0.01, 0.05])
    assert not passed([0.01, 0.05, 0.09, 0.11])


def test_a_table_for_information_has_no_verdict() -> None:
    assert tables.judged("V5", "", [row(1.0, 9.0)]).passed is None


def test_tables_are_found_by_name_in_any_case_and_order() -> None:
    assert tables.table_names([]) == list(tables.MODULES)
    assert tables.table_names(["v6", "V2"]) == ["V2", "V6"]
    assert tables.table_names(["V2,V3"]) == ["V2", "V3"]
    with pytest.raises(ConfigError, match="no table 'V10'"):
        tables.table_names(["V10"])
