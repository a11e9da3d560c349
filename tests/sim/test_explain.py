"""A recorded switch-off is explained by the beliefs behind it, right or wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adaptive_spec.commands.cli import with_installed_commands
from adaptive_spec.errors import DataError
from adaptive_spec.policy import Policy
from adaptive_spec.sim.explain import explain, switches
from adaptive_spec.sim.policy_choice import PolicyChoice, parse_policy
from adaptive_spec.sim.scenario import Scenario
from adaptive_spec.step import Mode
from tests.sim.small_server import RandomK

OFF = (Mode.OFF_WARM, Mode.OFF_COLD)


def record(folder: Path, acceptance: str, policy: Policy) -> Path:
    """Trace of a simulated server with 8 clients."""
    scenario = Scenario(
        load="closed:8",
        acceptance=(acceptance,),
        drafter="eagle",
        hardware="h100-llama-8b",
        seed=3,
        tokens=8000,
        trace_directory=str(folder),
    )
    engine = scenario.engine_for(policy)
    scenario.run_engine(engine, "")
    engine.controller.close()
    return folder


def altered(trace: Path, folder: Path, factor: Callable[[dict[str, Any]], float]) -> Path:
    """The same trace with longer steps."""
    folder.mkdir()
    for segment in sorted(trace.glob("steps-*.jsonl")):
        lines = []
        for line in segment.read_text().splitlines():
            step = json.loads(line)
            if step["seconds"] is not None:
                step["seconds"] *= factor(step)
            lines.append(json.dumps(step))
        (folder / segment.name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def choice() -> PolicyChoice:
    return parse_policy("goodput")


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory, choice: PolicyChoice) -> Path:
    """Trace of a server whose drafts are never worth it."""
    return record(tmp_path_factory.mktemp("dead"), "model:dead", choice.build(0))


def test_a_replay_repeats_the_recorded_switches(dead: Path, choice: PolicyChoice) -> None:
    """Times are recorded to the microsecond: a later switch may come a step earlier or later."""
    found = switches(dead, choice)
    assert found.recorded
    assert found.recorded[:4] == found.replayed[:4]
    assert found.departs is None or found.departs > found.recorded[3].step
    assert found.recorded[0].recorded in (Mode.OFF_WARM, Mode.OFF_COLD)
    assert "of no speculation" in found.recorded[0].why


def test_switches_that_the_server_did_not_make_are_not_printed_as_its_own(
    tmp_path: Path, choice: PolicyChoice
) -> None:
    """A trace of one mode, whose replay switches off: its drafts are never worth it."""
    named = ("--policy", choice.text)
    trace = record(tmp_path / "on", "model:dead", RandomK(1))
    found = switches(trace, choice)
    assert not found.recorded
    assert found.replayed
    assert found.departs == found.replayed[0].step
    shown = CliRunner().invoke(with_installed_commands(), ["explain", str(trace), *named]).output
    shown = " ".join(shown.split())
    assert "Speculation was never switched in the record" in shown
    assert f"From step {found.departs:,} on the replay is off where the server was on" in shown
    assert "OFF since" not in shown
    shown = CliRunner().invoke(
        with_installed_commands(), ["explain", str(trace), "--replayed", *named]
    )
    assert "the replay: OFF since" in " ".join(shown.output.split())


def test_a_trace_that_is_too_short_says_so(dead: Path, tmp_path: Path) -> None:
    lines = sorted(dead.glob("steps-*.jsonl"))[0].read_text().splitlines(keepends=True)
    (tmp_path / "steps-1-000000.jsonl").write_text("".join(lines[:4]))
    shown = CliRunner().invoke(with_installed_commands(), ["explain", str(tmp_path)]).output
    assert "decode steps: too few to explain anything, 60 are needed" in " ".join(shown.split())
    assert "never switched" not in shown


def test_a_right_switch_off_has_no_wrong_belief(dead: Path, choice: PolicyChoice) -> None:
    """None that speaks for it: acceptance that is still thought too high speaks against it."""
    off = switches(dead, choice).recorded[0]
    wrong = [belief for belief in off.beliefs if belief.wrong]
    assert not any(belief.seconds or belief.believed < belief.measured for belief in wrong)
    drafts = [belief for belief in off.beliefs if belief.name == "draft 1 accepted"]
    assert drafts[0].measured < 0.2
    assert max(off.switch.values(), key=lambda of: of if isinstance(of, float) else 0.0) > 0.0


def test_step_times_that_the_policy_has_wrong_are_named(
    dead: Path, tmp_path: Path, choice: PolicyChoice
) -> None:
    trace = altered(dead, tmp_path / "slow", lambda step: 1.6 if step["step"] > 120 else 1.0)
    before = explain(trace, choice, step=120, window=10)
    assert [belief.name for belief in before.beliefs if belief.wrong] == []
    after = explain(trace, choice, step=123, window=3)
    wrong = [belief for belief in after.beliefs if belief.wrong]
    assert wrong
    assert all(belief.seconds and belief.measured > 1.15 * belief.believed for belief in wrong)
    learned = explain(trace, choice, step=127, window=4)
    assert not any(belief.wrong for belief in learned.beliefs)


def test_the_belief_behind_a_wrong_switch_off_shows_in_the_steps_after_it(
    tmp_path: Path, choice: PolicyChoice
) -> None:
    """Steps with drafts are slow until it; the recorded server goes on as before."""
    named = ("--policy", choice.text)

    def slow_until(end: int) -> Callable[[dict[str, Any]], float]:
        return lambda step: 4.0 if step["step"] < end and any(step["k"]) else 1.0

    recorded = record(tmp_path / "good", "model:steady-80", RandomK(1))
    slow = altered(recorded, tmp_path / "slow", slow_until(200))
    off = next(one for one in switches(slow, choice).replayed if one.replayed in OFF)
    assert off.step <= 200
    trace = altered(recorded, tmp_path / "again", slow_until(off.step))
    found = explain(trace, choice, step=off.step)
    assert found.replayed in OFF
    wrong = {belief.name: belief for belief in found.afterwards if belief.wrong}
    assert wrong["step with drafts"].believed > 1.5 * wrong["step with drafts"].measured
    result = CliRunner().invoke(
        with_installed_commands(), ["explain", str(trace), "--step", str(off.step), *named]
    )
    assert "step with drafts: " in result.output
    assert "measured afterwards" in result.output


def test_the_command_prints_the_verdict(dead: Path, choice: PolicyChoice) -> None:
    named = ("--policy", choice.text)
    off = switches(dead, choice).recorded[0]
    wrong = any(belief.wrong for belief in off.beliefs)
    result = CliRunner().invoke(
        with_installed_commands(), ["explain", str(dead), "--step", str(off.step), *named]
    )
    assert result.exit_code == 0, result.output
    assert "Verdict: " in result.output
    assert ("Verdict: no belief was wrong." in result.output) != wrong
    assert "OFF since" in result.output


def test_a_step_that_the_trace_lacks_is_one_error(dead: Path, choice: PolicyChoice) -> None:
    with pytest.raises(DataError, match="no step 99999999 in which a request decodes"):
        explain(dead, choice, step=99_999_999)
