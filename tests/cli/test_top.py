"""`adaptive-spec top` against a small HTTP server and status files."""

import json
import os
import socket
import time
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path

import pytest
from rich.console import Console
from typer import Typer
from typer.testing import CliRunner

from adaptive_spec.commands import status_source
from adaptive_spec.commands.status_source import StatusSource
from adaptive_spec.commands.top import screen, top
from adaptive_spec.errors import DataError
from adaptive_spec.sim.commands.advise import advise
from tests.http_servers import Handler, listening
from tests.refused import refused

STATUS = {
    "mode": "on",
    "policy": "goodput",
    "steps": 300,
    "verified_tokens": 600,
    "accepted_tokens": 300,
    "emitted_tokens": 500,
    "requests_by_k": {"0": 50, "3": 150},
    "steps_by_mode": {"on": 100},
    "drafts_by_task": {"code": [100, 75]},
    "max_draft_tokens": 3,
    "live_requests": 2,
    "requests_without_drafter": 1,
    "last_depth": 3,
    "last_reason": "best of 3",
    "goodput": {"predicted": 120.0, "measured": 118.0},
    "estimates": {"no_speculation": 80.0, "engine_k": 100.0, "planned": 120.0},
    "fail_opens": {"plan raised": 2},
}
LATER = STATUS | {"steps": 310, "verified_tokens": 660, "emitted_tokens": 560}


class Status(Handler):
    def respond(self) -> None:
        if self.path != "/v1/adaptive_spec":
            self.answer(404)
        elif self.headers["Authorization"] != "Bearer secret":
            self.answer(401)
        else:
            body = {"engines": [{"engine": 0, "status": STATUS}]}
            self.answer(200, json.dumps(body).encode())


@pytest.fixture
def url() -> Iterator[str]:
    with listening(Status) as server:
        yield f"http://127.0.0.1:{server.server_port}"


class Elsewhere(Handler):
    """Points to another address; a route of its own trickles."""

    seen: list[tuple[str, str | None, str | None]]

    def respond(self) -> None:
        self.seen.append(
            (self.path, self.headers["Authorization"], self.headers["X-Adaptive-Spec-Key"])
        )
        if self.path.startswith("/slow"):
            self.answer(200)
            for _ in range(40):  # two seconds
                try:
                    self.wfile.write(b" ")
                except OSError:
                    break
                time.sleep(0.05)
            return
        self.answer(302, Location=f"http://localhost:{self.server.server_port}/caught")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    monkeypatch.setattr(Elsewhere, "seen", [], raising=False)
    monkeypatch.setenv("ADAPTIVE_SPEC_ADMIN_KEY", "admin-secret")
    monkeypatch.setenv("VLLM_API_KEY", "client-secret")
    with listening(Elsewhere) as server:
        yield server


def test_keys_do_not_follow_a_redirect(elsewhere: HTTPServer) -> None:
    with pytest.raises(DataError, match=r"HTTP 302: points to http://localhost:\d+/caught"):
        StatusSource(str(elsewhere.server_port)).read()
    assert Elsewhere.seen == [("/v1/adaptive_spec", "Bearer client-secret", "admin-secret")]


@pytest.mark.parametrize(("admin", "sent"), [(False, None), (True, "admin-secret")])
def test_the_admin_key_goes_to_another_machine_only_if_asked(
    elsewhere: HTTPServer, monkeypatch: pytest.MonkeyPatch, admin: bool, sent: str | None
) -> None:
    connect = socket.create_connection
    here = ("127.0.0.1", elsewhere.server_port)
    monkeypatch.setattr(
        socket, "create_connection", lambda address, *rest, **more: connect(here, *rest, **more)
    )
    with pytest.raises(DataError, match="HTTP 302"):
        StatusSource("gpu-7.example:8000", admin=admin).read()
    assert Elsewhere.seen == [("/v1/adaptive_spec", "Bearer client-secret", sent)]


def test_no_proxy_sees_the_keys(elsewhere: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(DataError, match="HTTP 302"):
        StatusSource(str(elsewhere.server_port)).read()


def test_an_answer_that_trickles_is_cut(
    elsewhere: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_source, "TIMEOUT_SECONDS", 0.3)
    with pytest.raises(DataError, match=r"no answer: not whole within 0\.3 s"):
        StatusSource(f"http://127.0.0.1:{elsewhere.server_port}/slow").read()


def test_https_where_http_is_spoken_is_said(url: str) -> None:
    with pytest.raises(DataError, match="no answer: it speaks http, not https"):
        StatusSource(url.replace("http:", "https:")).read()


def shown(view: object) -> str:
    plain = Console(width=120, color_system=None)
    with plain.capture() as capture:
        plain.print(view)
    return capture.get()


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/adaptive_spec"])
def test_statuses_are_read_with_the_key_from_any_form_of_the_url(url, path):
    assert StatusSource(url + path, key="secret").read() == {"0": STATUS}


def test_a_wrong_key_is_said_in_one_line(url):
    with pytest.raises(DataError, match="HTTP 401: wrong or missing API key"):
        StatusSource(url, key="another").read()


@pytest.mark.parametrize("place", ["http://[::1", "http://localhost:x", "http://a b", "PIPE"])
def test_what_nobody_can_read_is_said_in_one_line(place, tmp_path):
    if place == "PIPE":
        place = str(tmp_path / "pipe")
        os.mkfifo(place)
    with refused(DataError, place):
        StatusSource(place).read()


def test_a_server_that_does_not_answer_degrades_to_the_status_file(tmp_path):
    file = tmp_path / "status.json"
    file.write_text(json.dumps(STATUS))
    source = StatusSource("http://127.0.0.1:9", file=file)
    assert source.read() == {"0": STATUS}
    assert "no answer" in source.note
    with pytest.raises(DataError, match="no answer"):
        StatusSource("http://127.0.0.1:9").read()


def test_a_damaged_status_file_is_said_in_one_line(tmp_path):
    file = tmp_path / "status.json"
    file.write_text("[" * 100_000)
    with pytest.raises(DataError, match="not a status of adaptive-spec"):
        StatusSource(str(file)).read()


@pytest.mark.parametrize(
    "change",
    [
        {"steps": "many"},
        {"requests_by_k": [1]},
        {"drafts_by_task": {"0": [1]}},
        {"max_draft_tokens": 300_000},
        {"estimates": {"planned": "x"}},
        {"goodput": 7},
        {"fail_opens": {"plan": None}},
        {"last_reason": ["a"]},
        {"policy": None},
        {"why": 1},
        {"idle_seconds": "x"},
        {"steps_by_kind": 3},
        {"explanation": {"untimed_k": 7}},
    ],
    ids=str,
)
def test_a_status_of_other_types_or_sizes_is_refused_in_one_line(change, tmp_path):
    file = tmp_path / "status.json"
    file.write_text(json.dumps(STATUS | change))
    with refused(DataError, "not a status of adaptive-spec"):
        StatusSource(str(file)).read()


def test_where_drafts_break_even_is_asked_of_a_server(tmp_path):
    with pytest.raises(DataError, match="no such trace; a running server is HOST:PORT"):
        StatusSource(str(tmp_path / "status.json")).read_break_even()


def test_no_text_of_a_status_reaches_the_terminal_as_a_command():
    hostile = "\x1b]0;t\x07\x1b[2J[/nope][red]\u202e"
    status = STATUS | {
        "policy": hostile,
        "mode": hostile,
        "last_reason": hostile,
        "steps_by_mode": {hostile: 3},
        "fail_opens": {hostile: 1},
        "drafts_by_task": {hostile: [4, 2]},
    }
    text = shown(screen({hostile: status}, {}, 0.0, hostile))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "[/nope]" in text


def test_young_estimates_are_called_so():
    def gain(**changes: object) -> str:
        text = shown(screen({"0": STATUS | changes}, {}, 0.0))
        return next(line for line in text.splitlines() if "gain (estimate)" in line)

    assert "still learning" in gain(steps=299)
    assert "still learning" not in gain(steps=300)
    kinds = {"planned": 700, "measuring": 300}
    assert "still learning" in gain(steps=1000, steps_by_kind=kinds)
    assert "still learning" not in gain(steps=100, estimates={})


def test_estimates_of_zero_and_missing_ones_are_shown_as_unknown():
    estimates = {"planned": 3.0, "no_speculation": 0.0}
    assert "gain (estimate)" in shown(screen({"0": STATUS | {"estimates": estimates}}, {}, 0.0))


@pytest.mark.parametrize("named", [["--server"], []], ids=["option", "argument"])
def test_advise_says_that_the_trace_of_a_server_is_for_operators(url, named):
    app = Typer()
    app.command()(advise)
    done = CliRunner().invoke(app, [*named, url, "--key", "secret"])
    assert "shows its trace's folder to operators only: set ADAPTIVE_SPEC_ADMIN_KEY" in str(
        done.exception
    )


class Hostile(Handler):
    """Answers whatever a test wants."""

    body: dict[str, object]

    def respond(self) -> None:
        self.answer(200, json.dumps(self.body).encode())


@pytest.mark.parametrize("folder", ["/tmp/\x1b[31mred\x07\u202e", "x" * 5000, "a\0b", ["a"]])
def test_a_folder_that_a_server_names_is_one_line(monkeypatch, folder):
    status = STATUS | {"trace_directory": folder}
    monkeypatch.setattr(Hostile, "body", {"engines": [{"engine": 0, "status": status}]}, False)
    app = Typer()
    app.command()(advise)
    with listening(Hostile) as server:
        done = CliRunner().invoke(app, [f"http://127.0.0.1:{server.server_port}"])
    assert isinstance(done.exception, DataError)
    said = str(done.exception)
    assert said.isprintable()
    assert len(said) < 500


def test_more_engines_than_any_server_has_are_refused(monkeypatch):
    engines = [{"engine": n, "status": {}} for n in range(2000)]
    monkeypatch.setattr(Hostile, "body", {"engines": engines}, False)
    with listening(Hostile) as server, refused(DataError, "not a status of adaptive-spec"):
        StatusSource(str(server.server_port)).read()


def test_the_view_shows_rates_since_the_last_reading():
    text = shown(screen({"0": LATER}, {"0": STATUS}, 2.0))
    assert "30" in next(line for line in text.splitlines() if "tokens/s" in line)
    for figure in ("102% of measured", "+50% over no speculation", "+20% over engine's own K"):
        assert figure in text
    for figure in ("plan raised 2", "engine 0: goodput, on"):
        assert figure in text


def test_the_share_of_measuring_steps_names_the_k_that_end_it():
    learning = {"steps": 100, "steps_by_kind": {"planned": 60, "measuring": 40}, "explanation": {}}
    assert "planned 60%, measuring 40%" in shown(screen({"0": STATUS | learning}, {}, 0.0))
    learning["explanation"] = {"untimed_k": [0, 1]}
    text = shown(screen({"0": STATUS | learning}, {}, 0.0))
    assert "measuring 40% (still to time: K = 0, 1)" in text


def test_the_first_view_shows_totals_and_acceptance_by_task():
    text = shown(screen({"0": STATUS}, {}, 0.0, "status file"))
    assert "status file" in text
    assert "75%" in next(line for line in text.splitlines() if "accepted, code" in line)
    assert "75%" in next(line for line in text.splitlines() if "K = 3" in line)


def test_a_restarted_engine_counts_from_its_start():
    text = shown(screen({"0": STATUS}, {"0": STATUS | {"steps": 900}}, 1.0))
    assert "500" in next(line for line in text.splitlines() if "tokens/s" in line)


def test_the_command_prints_once_from_a_file(tmp_path: Path):
    file = tmp_path / "status.json"
    file.write_text(json.dumps(STATUS))
    app = Typer()
    app.command()(top)
    done = CliRunner().invoke(app, [str(file), "--once"])
    assert done.exit_code == 0, done.output
    assert "engine 0: goodput, on" in done.output


def test_the_measured_gain_stands_above_the_estimate() -> None:
    gain = {"blocks": 214, "gain": 0.062, "low": 0.049, "high": 0.075, "sums": [1.0] * 6}
    audit = {"arms": {"engine": gain}, "handed_back": ["33-64"]}
    text = shown(screen({"0": STATUS | {"audit": audit}}, {}, 0.0))
    assert "+6.2% (+4.9% to +7.5%), 214 blocks over the engine's own K" in text
    few = shown(screen({"0": STATUS | {"audit": {"arms": {"none": {"blocks": 1}}}}}, {}, 0.0))
    assert "no bounds yet (1 block of 12) over no drafts" in few
    assert "the engine's own K runs at 33-64 requests" in text
    assert text.index("gain (measured)") < text.index("gain (estimate)")
    assert "ValueError: x" in shown(
        screen({"0": STATUS | {"audit": {"fault": "ValueError: x"}}}, {}, 0.0)
    )
