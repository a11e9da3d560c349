"""Tables of speculation at load: what is fitted, what is validated, and some cells of them."""

from __future__ import annotations

from statistics import NormalDist, harmonic_mean

import msgspec
import pytest

from benchmarks.validation import at_load
from benchmarks.validation.arms import level_of
from benchmarks.validation.request_spread import OUTPUT_TOKENS, SINGLE, deviation_of
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


AUDIT = "H100, vLLM, EAGLE-3, "


def named(name: str) -> at_load.Published:
    (table,) = [each for each in at_load.published() if each.name == name]
    return table


def test_a_text_gets_its_own_accepted_length_out_of_counters_that_ran_on() -> None:
    texts = [named(AUDIT + text) for text in ("humaneval", "gsm8k", "mt_bench")]
    own = [table.own_length(64, 2) for table in texts]
    run = [64 + 96, 64 + 96, 64 + 80]  # requests, the first batch twice
    steps = [requests / length for requests, length in zip(run, own, strict=True)]
    for number, table in enumerate(texts, 1):
        (so_far,) = [row[2] for row in table.rows if row[:2] == (64, 2)]
        assert sum(run[:number]) / sum(steps[:number]) == pytest.approx(so_far)


def test_a_run_is_submitted_in_the_batches_that_its_script_made() -> None:
    load = named(AUDIT + "mt_bench").arms(64).load()
    sizes, prompts = [], []
    for now in (1.0, 2.0, 3.0):
        batch = []
        while load.next_arrival() < now:
            batch.append(load.take())
        sizes.append(len(batch))
        prompts.append({request.prompt_tokens for request in batch})
        for request in batch:
            load.finished(request, now)
    assert sizes == [64, 16, 64]
    assert prompts == [{16}, {75}, {16}]


def test_requests_that_differ_have_the_published_length_together() -> None:
    level = level_of(1.6, 2, 0.5)
    normal = NormalDist(level, 0.5).inv_cdf
    logits = [normal((part + 0.5) / 1000) for part in range(1000)]
    hazards = [1.0 / (1.0 + 2.718281828**-each) for each in logits]
    lengths = [1.0 + h + h * h for h in hazards]
    assert harmonic_mean(lengths) == pytest.approx(1.6, abs=1e-3)
    assert level_of(1.6, 2, 0.5, of_requests=True) < level


@pytest.mark.parametrize("text", SINGLE)
def test_the_stated_deviations_are_those_of_the_published_single_requests(text: str) -> None:
    assert named(AUDIT + text + ", one request").output_tokens == OUTPUT_TOKENS
    found = [deviation_of(*SINGLE[text][k], k) for k in SINGLE[text]]
    for name in (AUDIT + text, AUDIT + text + ", one request"):
        assert named(name).deviation == pytest.approx(sum(found) / len(found), abs=0.01)
