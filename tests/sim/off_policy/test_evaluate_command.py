"""`adaptive-spec evaluate`, as it is typed."""

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from adaptive_spec.sim.commands.evaluate import evaluate
from tests.sim.off_policy.worlds import Drawn, mixed_server, record

TABLE = {2: 0.5, 6: 0.5}


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(evaluate)
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def traced(folder: Path) -> str:
    logger = Drawn(1, TABLE, TABLE, by_request=True)
    return str(record(mixed_server, logger, 1, folder, 250, output=60))


def test_json_has_every_estimate(tmp_path: Path) -> None:
    trace = traced(tmp_path)
    found = json.loads(run(trace, "--policy", "static:k=2", "--policy", "static:k=3", "--json"))
    assert found["draw"] == "request"
    supported, unsupported = found["policies"]
    assert supported["policy"] == "static:k=2"
    found = supported["doubly_robust"]
    assert found["low"] < found["value"] < found["high"]
    assert not supported["problem"]
    assert unsupported["problem"]


def test_the_table_leaves_out_what_cannot_be_relied_on(tmp_path: Path) -> None:
    shown = run(traced(tmp_path), "--policy", "static:k=2", "--policy", "static:k=3")
    assert "as recorded" in shown
    [row] = [line for line in shown.splitlines() if line.startswith(" static:k=3")]
    assert "–" in row
    assert "had a chance to be recorded" in " ".join(shown.split())
