"""The tables, reproduced from the public data."""

from pathlib import Path

import pytest

from adaptive_spec.errors import DataError
from benchmarks.validation import eagle3_by_batch, leviathan, specdecode_bench
from benchmarks.validation.tables import Verdict, judged, reproduce


def test_leviathans_expected_speed_ups_come_out_of_the_engine_loop(data: Path) -> None:
    verdict = reproduce("V1", data)
    assert verdict.passed
    assert len(verdict.rows) == 12
    assert all(row.counted for row in verdict.rows)


def test_a_wrong_acceptance_misses_leviathans_table(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = leviathan.speed_up
    monkeypatch.setattr(leviathan, "speed_up", lambda a, g, c: right(a - 0.1, g, c, 2_000))
    assert reproduce("V1", data).passed is False


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


@pytest.mark.long
def test_k_by_batch_is_reproduced(data: Path) -> None:
    verdict = reproduce("V3", data)
    assert [check.found for check in verdict.checks if not check.passed] == []
    assert sum(row.counted for row in verdict.rows) == 12


def test_one_request_at_a_time_is_reproduced(data: Path) -> None:
    verdict = reproduce("V4", data)
    assert verdict.passed
    assert [row.counted for row in verdict.rows] == [True, False, True]


@pytest.mark.long
def test_specdecodebench_and_its_simulator_are_reproduced(data: Path) -> None:
    found = specdecode_bench.rows(data, (3,))
    assert all(row.within for row in found)
    assert found[0].simulated == pytest.approx(1.19, abs=0.01)


def test_correlation_of_held_out_requests_is_reproduced(data: Path) -> None:
    verdict = reproduce("V7", data)
    assert verdict.passed
    pair = [row for row in verdict.rows if "published" in row.label]
    assert all(abs(row.error) < 0.01 for row in pair)


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
