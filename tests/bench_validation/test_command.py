from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from adaptive_spec.errors import ConfigError, DataError
from benchmarks.validation import vllm_pull_request_16035
from benchmarks.validation.__main__ import validate

app = typer.Typer()
app.command()(validate)


def run(*arguments: str, folder: Path):
    return CliRunner().invoke(app, ["--data", str(folder), *arguments])


def test_the_table_shows_the_rows_and_the_verdict(tmp_path: Path) -> None:
    result = run("--table", "V4", folder=tmp_path)
    assert result.exit_code == 0
    assert "128.6" in result.stdout
    assert "V4: reproduced" in result.stdout


def test_a_missed_bound_is_exit_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_pull_request_16035, "ANY_DRAFT", 9e-3)
    result = run("--table", "V4", folder=tmp_path)
    assert result.exit_code == 1
    assert "MISSED" in result.stdout


def test_missing_data_and_unknown_tables_are_one_clear_error(tmp_path: Path) -> None:
    missing = run("--table", "V1", folder=tmp_path)
    assert isinstance(missing.exception, DataError)
    assert "is this the data folder?" in str(missing.exception)
    assert isinstance(run(folder=tmp_path / "none").exception, DataError)
    assert isinstance(run("--table", "V10", folder=tmp_path).exception, ConfigError)
