"""The tables, reproduced from the public data."""

from pathlib import Path

import pytest

from adaptive_spec.errors import ConfigError, DataError
from benchmarks.validation import eagle3_by_batch
from benchmarks.validation.__main__ import validate
from benchmarks.validation.row import Row


@pytest.fixture(scope="module")
def eagle_by_batch_size(data: Path) -> list[Row]:
    # Batch 2 is left out, since it takes as long as all the others: the command runs it too.
    return eagle3_by_batch.rows(data, (4, 8, 16, 24, 32, 48, 56, 64))


@pytest.mark.long
def test_eagle_by_batch_size_is_reproduced(eagle_by_batch_size: list[Row]) -> None:
    assert all(check.passed for check in eagle3_by_batch.checks(eagle_by_batch_size))
    assert len(eagle_by_batch_size) == 30


@pytest.mark.long
def test_fitted_hazards_and_host_time_solve_the_rows_fitted_on(
    eagle_by_batch_size: list[Row],
) -> None:
    fitted = [row for row in eagle_by_batch_size if not row.counted]
    assert len(fitted) == 3 * len(eagle3_by_batch.machines())
    assert all(abs(row.error) < 0.005 for row in fitted)


def test_missing_and_damaged_files_and_unknown_tables_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'V10'"):
        validate(data=tmp_path, tables=["V10"])
    with pytest.raises(DataError, match="specbench_vicuna7b"):
        validate(data=tmp_path, tables=["V2"])
    answers = tmp_path / eagle3_by_batch.ANSWERS
    answers.parent.mkdir()
    answers.write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"specbench_vicuna7b.*cannot be read"):
        validate(data=tmp_path, tables=["V2"])
