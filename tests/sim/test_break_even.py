"""`adaptive-spec breakeven` on the trace of a server whose step times are known."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adaptive_spec.commands.cli import with_installed_commands
from adaptive_spec.errors import DataError
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.break_even import break_even
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate

KMAX = 6


def scenario(clients: int, acceptance: str, **changes: object) -> Scenario:
    return Scenario(
        load=f"closed:{clients}",
        acceptance=(acceptance,),
        drafter="eagle",
        hardware="h100-llama-8b",
        seed=2,
        tokens=600 * clients,
        **changes,
    )


def recorded(folder: Path, clients: int, acceptance: str) -> Path:
    """Trace of the plugin on a simulated server."""
    of = scenario(clients, acceptance, trace_directory=str(folder))
    engine = of.engine_for(build_policy("goodput"))
    of.run_engine(engine, "")
    engine.controller.close()
    return folder


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("trace"), 64, "model:good")


def answer(*arguments: str) -> str:
    result = CliRunner().invoke(with_installed_commands(), ["breakeven", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "acceptance"),
    [(4, "model:good"), (64, "model:good"), (64, "model:steady-5")],
)
def test_its_best_k_costs_at_most_two_per_cent(
    tmp_path: Path, clients: int, acceptance: str
) -> None:
    found = break_even(recorded(tmp_path, clients, acceptance), parse_policy("goodput"))
    rates = [
        simulate(scenario(clients, acceptance), parse_policy(f"static:k={k}")).throughput_tok_s
        for k in range(KMAX + 1)
    ]
    # K = 0 here runs the drafter's pass, which no speculation leaves out.
    rates[0] = simulate(scenario(clients, acceptance), parse_policy("off")).throughput_tok_s
    assert rates[found.now.k] >= 0.98 * max(rates)
    # A request whose prompt runs does not decode.
    assert clients - max(1, 0.1 * clients) <= found.now.batch <= clients


def test_it_says_what_a_round_must_have_and_has(trace: Path) -> None:
    said = " ".join(answer(str(trace)).split())
    found = break_even(trace, parse_policy("goodput"))
    k = found.now.k
    assert k > 0
    assert f"a round of {k} must have {found.now.needed[k][1]:.2f} accepted drafts" in said
    assert f"it has {found.accepted[k - 1]:.2f}. Best: K = {k}" in said
    stops = next((cell for cell in found.cells if cell.context == 512 and not cell.k), None)
    assert stops is None or f"{stops.batch:,} at 512 tokens (predicted)" in said
    assert f"~{found.cells[0].k} {found.cells[0].gain[1]:.2f}" in said


def test_json_holds_every_load(trace: Path) -> None:
    [found] = json.loads(answer(str(trace), "--json")).values()
    assert {"batch", "context", "seen", "timed_without", "k", "gain", "needed"} == set(
        found["cells"][0]
    )
    assert [cell["seen"] for cell in found["cells"]].count(True) >= 1


def test_what_it_cannot_read_is_one_error(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a folder without steps-"):
        break_even(tmp_path, parse_policy("goodput"))
    with pytest.raises(DataError, match="no model of step times; try goodput"):
        break_even(trace, parse_policy("static:k=2"))
    for source in (str(tmp_path / "missing"), "localhost:9"):
        result = CliRunner().invoke(with_installed_commands(), ["breakeven", source])
        assert isinstance(result.exception, DataError)
        assert str(result.exception).count("\n") == 0
