"""A recorded switch-off is explained by the beliefs behind it, right or wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adaptive_spec.commands.cli import with_installed_commands
from adaptive_spec.errors import DataError
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.explain import explain, switches
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.step import Mode

GOODPUT = parse_policy("goodput")


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trace of a server whose drafts are never worth it."""
    folder: Path = tmp_path_factory.mktemp("dead")
    scenario = Scenario(
        load="closed:8",
        acceptance=("model:dead",),
        drafter="eagle",
        hardware="h100-llama-8b",
        seed=3,
        tokens=8000,
        trace_directory=str(folder),
    )
    engine = scenario.engine_for(build_policy("goodput", {}, seed=0))
    scenario.run_engine(engine, "goodput")
    engine.controller.close()
    return folder


def test_a_replay_repeats_the_recorded_switches(dead: Path) -> None:
    found = list(switches(dead, GOODPUT))
    assert found
    assert found[0].recorded in (Mode.OFF_WARM, Mode.OFF_COLD)
    assert all(one.recorded is one.replayed for one in found)
    assert "of no speculation" in found[0].why


def test_a_right_switch_off_has_no_wrong_belief(dead: Path) -> None:
    off = next(switches(dead, GOODPUT))
    assert [belief.name for belief in off.beliefs if belief.wrong] == []
    drafts = [belief for belief in off.beliefs if belief.name == "draft 1 accepted"]
    assert drafts[0].measured < 0.2
    assert off.switch["cost_of_coming_back"] > 0.0


def test_step_times_that_the_policy_has_wrong_are_named(dead: Path, tmp_path: Path) -> None:
    for segment in sorted(dead.glob("steps-*.jsonl")):
        lines = []
        for line in segment.read_text().splitlines():
            record = json.loads(line)
            if record["step"] > 120 and record["seconds"] is not None:
                record["seconds"] *= 1.6
            lines.append(json.dumps(record))
        (tmp_path / segment.name).write_text("\n".join(lines) + "\n")
    before = explain(tmp_path, GOODPUT, step=120, window=10)
    assert [belief.name for belief in before.beliefs if belief.wrong] == []
    after = explain(tmp_path, GOODPUT, step=123, window=3)
    wrong = [belief for belief in after.beliefs if belief.wrong]
    assert wrong
    assert all(belief.seconds and belief.measured > 1.15 * belief.believed for belief in wrong)
    learned = explain(tmp_path, GOODPUT, step=127, window=4)
    assert not any(belief.wrong for belief in learned.beliefs)


def test_the_command_prints_the_verdict(dead: Path) -> None:
    off = next(switches(dead, GOODPUT))
    result = CliRunner().invoke(
        with_installed_commands(), ["explain", str(dead), "--step", str(off.step)]
    )
    assert result.exit_code == 0, result.output
    assert "Verdict: no belief was wrong." in result.output
    assert "OFF since" in result.output


def test_a_step_that_the_trace_lacks_is_one_error(dead: Path) -> None:
    with pytest.raises(DataError, match="no step 99999999 in which a request decodes"):
        explain(dead, GOODPUT, step=99_999_999)
