"""The tables, reproduced from the public data."""

from pathlib import Path

import pytest

from adaptive_spec.errors import DataError
from benchmarks.validation import eagle3_by_batch, leviathan
from benchmarks.validation.tables import Verdict, judged, reproduce


@pytest.fixture(scope="module")
def eagle_by_batch_size(data: Path) -> Verdict:
    # Batch 2 is left out, since it takes as long as all the others: the command runs it too.
    rows = eagle3_by_batch.rows(data, (4, 8, 16, 24, 32, 48, 56, 64))
    return judged("V2", eagle3_by_batch.TITLE, rows, eagle3_by_batch.checks(rows))


@pytest.mark.long
def test_eagle_by_batch_size_is_reproduced(eagle_by_batch_size: Verdict) -> None:
    verdict = eagle_by_batch_size
    assert [check.found for check in verdict.checks if not check.passed] == []
    assert len(verdict.rows) == 30


@pytest.mark.long
def test_fitted_hazards_and_host_time_solve_the_rows_fitted_on(
    eagle_by_batch_size: Verdict,
) -> None:
    fitted = [row for row in eagle_by_batch_size.rows if not row.counted]
    assert len(fitted) == 3 * len(eagle3_by_batch.machines())
    assert all(abs(row.error) < 0.005 for row in fitted)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="leviathan2023"):
        reproduce("V1", tmp_path)
    with pytest.raises(DataError, match="specbench_vicuna7b"):
        reproduce("V2", tmp_path)
    answers = tmp_path / eagle3_by_batch.ANSWERS
    answers.parent.mkdir()
    answers.write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"specbench_vicuna7b.*cannot be read"):
        reproduce("V2", tmp_path)
    table = tmp_path / leviathan.FILE
    table.parent.mkdir()
    header = "task,draft,temp,gamma,alpha,c,speedup_expected,speedup_measured\n"
    table.write_text(header + "EnDe,T5,0,7,much,.02,3.2,3.4\n")
    with pytest.raises(DataError, match=r"row 2.*'alpha'"):
        reproduce("V1", tmp_path)
