from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from adaptive_spec.errors import ConfigError, DataError
from benchmarks.validation import leviathan
from benchmarks.validation.__main__ import validate

app = typer.Typer()
app.command()(validate)


def run(*arguments: str, folder: Path):
    return CliRunner().invoke(app, ["--data", str(folder), *arguments])


def test_the_table_shows_the_rows_and_the_verdict(data: Path) -> None:
    result = run("--table", "V1", folder=data)
    assert result.exit_code == 0
    assert "temperature 0" in result.stdout
    assert "V1: reproduced" in result.stdout


def test_a_missed_bound_is_exit_status_1(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = leviathan.speed_up
    monkeypatch.setattr(leviathan, "speed_up", lambda a, g, c: right(a - 0.1, g, c, 2_000))
    result = run("--table", "V1", folder=data)
    assert result.exit_code == 1
    assert "MISSED" in result.stdout


def test_missing_data_and_unknown_tables_are_one_clear_error(tmp_path: Path) -> None:
    missing = run("--table", "V1", folder=tmp_path)
    assert isinstance(missing.exception, DataError)
    assert "is this the data folder?" in str(missing.exception)
    assert isinstance(run(folder=tmp_path / "none").exception, DataError)
    assert isinstance(run("--table", "V10", folder=tmp_path).exception, ConfigError)
