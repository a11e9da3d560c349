"""Tables of speculation at load: what is fitted, what is validated, and some cells of them."""

from __future__ import annotations

from statistics import NormalDist, harmonic_mean

import msgspec
import pytest

from benchmarks.validation import at_load
from benchmarks.validation.arms import level_of
from benchmarks.validation.row import Row


def test_no_cell_is_both_fitted_and_validated() -> None:
    seen = [
        (table.hardware, table.name.removesuffix(", one request"), *row[:2])
        for table in at_load.published()
        for row in table.rows
    ]
    assert len(seen) == len(set(seen))
    assert {table.role for table in at_load.published()} == {"fit", "validate"}


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
            batch.append(load.take_request())
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
