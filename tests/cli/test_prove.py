"""`adaptive-spec prove`: an answer with an exit status, and a server that is left as it was."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from adaptive_spec.audit.auditor import Gains
from adaptive_spec.audit.gain import Difference
from adaptive_spec.commands import prove as command
from adaptive_spec.commands.cli import typer
from adaptive_spec.commands.status_source import Gain
from tests.http_servers import Handler, listening

CLI = typer.Typer(pretty_exceptions_enable=False)
CLI.command()(command.prove)


def measured(gain: float, blocks: int) -> dict[str, Any]:
    """Figures of an arm."""
    random, gains = np.random.default_rng(0), Gains()
    for number in range(blocks):
        value = gain + 0.03 * random.normal()
        gains.add(Difference("engine", value, 1.0, 6 if number % 3 else 3, float(number)))
    return gains.figures(float(blocks))


class Server(Handler):
    """Two engines, whose blocks come 20 at a reading once they are asked for."""

    gain = 0.1
    mode = "on"
    fault = ""
    requests: list[dict[str, Any]]
    readings = 0
    stale: dict[str, Any]

    def respond(self) -> None:
        kind = type(self)
        if self.command == "POST":
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.headers["Content-Type"] == "application/json"
            kind.requests.append(body)
        raised = bool(self.requests) and "minutes" in self.requests[-1]["audit"]
        kind.readings += raised
        # At first the request has not reached the engines.
        seen, proof = min(self.readings - 2, 5), self.stale
        if raised and seen > 0:
            proof = {"engine": measured(self.gain, 20 * seen)}
        left = 60.0 if raised and seen > 0 else 0.0
        audit = {"share": 0.01, "proof": proof, "proof_seconds_left": left}
        if self.fault:
            audit = {"fault": self.fault}
        status = {"mode": self.mode, "audit": audit}
        engines = [{"engine": n, "status": status} for n in range(2)]
        self.answer(200, json.dumps({"engines": engines}).encode())


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(command.time, "sleep", lambda _: None)
    monkeypatch.setattr(Server, "requests", [], raising=False)
    monkeypatch.setattr(Server, "readings", 0)
    monkeypatch.setattr(Server, "stale", {}, raising=False)
    with listening(Server) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def run(*words: str) -> Result:
    return CliRunner().invoke(CLI, list(words))


@pytest.mark.parametrize(
    ("gain", "at_least", "exit_code", "said"),
    [(0.1, "0", 0, "yes"), (-0.1, "0", 1, "no"), (0.1, "20", 1, "no"), (-0.1, "-20", 0, "yes")],
)
def test_the_exit_status_is_the_answer(
    url: str, monkeypatch: pytest.MonkeyPatch, gain: float, at_least: str, exit_code: int, said: str
) -> None:
    monkeypatch.setattr(Server, "gain", gain)
    done = run(url, "--at-least", at_least)
    assert done.exit_code == exit_code, done.output
    assert done.output.rstrip().endswith(said)
    raised, restored = Server.requests
    assert raised == {"audit": {"share": 0.2, "arms": ["engine"], "minutes": 10.5}}
    assert restored == {"audit": {}}


def test_the_question_is_open_while_the_interval_holds_both(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "gain", 0.0)
    within = 100.0 * measured(0.0, 100)["gain"]
    done = run(url, "--minutes", "0.05", "--at-least", f"{within:.2f}")
    assert done.exit_code == 3
    assert "not known within this time" in done.output
    assert Server.requests[-1] == {"audit": {}}


def test_json_and_page_hold_the_interval_by_load_and_over_time(url: str, tmp_path: Path) -> None:
    html = tmp_path / "proof.html"
    within = 100.0 * measured(Server.gain, 100)["gain"]
    done = run(
        url, *("--json", "--html", str(html)), *("--minutes", "0.05", "--at-least", f"{within}")
    )
    proof = msgspec.json.decode(done.output, type=command.Proof)
    found = proof.arms["engine"]
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.105 < found.high
    assert found.by_load.keys() == {"5-8", "33-64"}
    assert found.blocks == sum(each.blocks for each in found.by_load.values())
    assert found.blocks % 40 == 0  # of both engines
    widths = [each.high - each.low for each in proof.course]
    assert widths == sorted(widths, reverse=True)
    text = html.read_text()
    assert "<polygon" in text
    assert "33-64" in text
    assert "http" not in text


def test_what_an_earlier_proof_has_left_answers_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "stale", {"engine": measured(-0.5, 100)})
    assert run(url).exit_code == 0


@pytest.mark.parametrize(("mode", "fault"), [("shadow", ""), ("on", "ValueError: x")])
def test_where_nothing_can_be_measured_nothing_is_switched(
    url: str, monkeypatch: pytest.MonkeyPatch, mode: str, fault: str
) -> None:
    monkeypatch.setattr(Server, "mode", mode)
    monkeypatch.setattr(Server, "fault", fault)
    done = run(url)
    assert type(done.exception).__name__ == "DataError"
    assert (mode if mode != "on" else fault) in str(done.exception)
    assert Server.requests == []


def test_a_control_file_carries_the_requests_where_there_is_no_route(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, seen = tmp_path / "control.json", []
    answer = command._watch

    def watch(*arguments: Any) -> command.Proof:
        seen.append(json.loads(control.read_text()))
        Server.requests.append(seen[0])
        return answer(*arguments)

    monkeypatch.setattr(command, "_watch", watch)
    assert run(url, "--control", str(control)).exit_code == 0
    assert seen[0]["audit"]["minutes"] == 10.5
    assert json.loads(control.read_text()) == {"audit": {}}
    assert control.stat().st_mode & 0o777 == 0o600


def test_a_few_blocks_are_a_figure_without_bounds() -> None:
    assert str(Gain(blocks=6, sums=(6.0, 2.0, 1.0, 0.2, 0.1, 0.01))) == (
        "no bounds yet (+11% in 6 blocks of 12)"
    )
    assert str(Gain()) == "no bounds yet (0 blocks of 12)"
