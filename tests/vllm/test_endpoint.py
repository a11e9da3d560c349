"""The switch over HTTP answers with one line, whatever is sent; no engine runs here."""

import asyncio
import json
import logging
import re
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="comes with vLLM; the stage with vLLM runs these tests")

from fastapi import FastAPI
from fastapi.testclient import TestClient

from adaptive_spec import Capability, Config, Controller, Level
from adaptive_spec.adapters.vllm.control import adaptive_spec_control
from adaptive_spec.adapters.vllm.endpoint import ControlEndpoint, operators
from adaptive_spec.errors import ConfigError
from adaptive_spec.operation.http_routes import PATH, VIEWS, OperatorRoutes
from adaptive_spec.operation.operator_access import OperatorAccess, admin_key

pytestmark = pytest.mark.engine

LOG = logging.getLogger("vllm.adaptive_spec")
JSON = {"Content-Type": "application/json"}


class OneEngine:
    """Stands in for vLLM's client of its engines."""

    def __init__(self) -> None:
        self.controller = Controller.from_config(
            Config(policy="static"),
            Capability(level=Level.FULL, max_draft_tokens=4),
        )
        self._core = SimpleNamespace(
            scheduler=SimpleNamespace(
                adaptive_spec=SimpleNamespace(controller=self.controller, publish=lambda: None)
            ),
            vllm_config=SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=0)),
        )

    async def call_utility_all_async(self, method: str, *body: Any) -> list[Any]:
        return [adaptive_spec_control(self._core, *body)]


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    app.state.endpoint = endpoint = ControlEndpoint()
    endpoint.attach_router(app)
    endpoint.client = OneEngine()
    endpoint.routes.access = OperatorAccess("", local=True)
    return TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


KEY = "an-admin-key"


@pytest.mark.parametrize(
    ("args", "key", "headers", "status"),
    [
        ({"host": "127.0.0.1"}, "", {}, 200),
        ({"host": "localhost"}, "", {"Origin": "http://127.0.0.1:8000"}, 200),
        ({"host": None}, "", {}, 403),
        ({"host": "0.0.0.0"}, "", {}, 403),
        ({"host": "127.0.0.1", "api_key": ["inference"]}, "", {}, 403),
        ({"host": "127.0.0.1", "uds": "/tmp/socket"}, "", {}, 403),
        ({"host": "127.0.0.1"}, "", {"Host": "evil.example"}, 403),
        ({"host": "127.0.0.1"}, "", {"Host": "127.0.0.1.evil.example"}, 403),
        ({"host": "127.0.0.1"}, "", {"Host": "evil.example/127.0.0.1"}, 403),
        ({"host": "127.0.0.1"}, "", {"Host": "[::1"}, 403),
        ({"host": "127.0.0.1"}, "", {"Origin": "http://evil.example"}, 403),
        ({"host": "127.0.0.1"}, "", {"Origin": "null"}, 403),
        ({"host": "127.0.0.1"}, "", {"Origin": "http://["}, 403),
        ({"host": "127.0.0.1"}, "", {"Sec-Fetch-Site": "cross-site"}, 403),
        ({"host": "127.0.0.1"}, "", {"Sec-Fetch-Site": "same-site"}, 403),
        ({"host": "127.0.0.1"}, KEY, {}, 403),
        ({"host": None, "api_key": ["inference"]}, KEY, {"X-Adaptive-Spec-Key": KEY}, 200),
        ({"host": None}, KEY, {"X-Adaptive-Spec-Key": KEY + "x"}, 403),
        ({"host": None}, KEY, {"X-Adaptive-Spec-Key": ""}, 403),
        ({"host": None}, KEY, {"Authorization": f"Bearer {KEY}"}, 403),
    ],
)
def test_only_an_operator_switches_and_sees_where_files_are(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    args: dict[str, Any],
    key: str,
    headers: dict[str, str],
    status: int,
) -> None:
    if key:
        monkeypatch.setenv("ADAPTIVE_SPEC_ADMIN_KEY", key)
    client.app.state.endpoint.routes.access = operators(Namespace(**args))
    answer = client.post(PATH, content=b'{"mode": "shadow"}', headers=JSON | headers)
    assert answer.status_code == status
    if status == 403:
        assert "\n" not in answer.json()["error"]
    found = client.get(PATH, headers=headers)
    assert found.status_code == 200
    [engine] = found.json()["engines"]
    assert engine["status"]["mode"] == ("shadow" if status == 200 else "on")
    shown = {"options", "trace_directory", "control_file_error"} & set(engine["status"])
    assert len(shown) == (3 if status == 200 else 0)


def test_labels_of_clients_are_for_operators(client: TestClient) -> None:
    controller = client.app.state.endpoint.client.controller
    status = controller.status() | {"drafts_by_task": {"customer-4711": [156, 78], "b": [9, 1]}}
    controller.recent_status = lambda: status

    def shown() -> Any:
        return client.get(PATH).json()["engines"][0]["status"]["drafts_by_task"]

    assert shown() == {"customer-4711": [156, 78], "b": [9, 1]}
    client.app.state.endpoint.routes.access = OperatorAccess(KEY, local=True)
    assert shown() == {"label 1": [156, 78], "label 2": [9, 1]}
    assert "customer-4711" in status["drafts_by_task"]


def test_a_post_that_is_aborted_is_one_line(
    client: TestClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)  # vLLM, if loaded, stops it
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1:8000")]
    scope = {"type": "http", "method": "POST", "path": PATH, "headers": headers}
    scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": ""}
    with caplog.at_level("INFO", logger="vllm.adaptive_spec"):
        asyncio.run(client.app(scope, receive, send))
    # A record that two loggers hand on is there twice.
    said = {id(each): each.getMessage() for each in caplog.records if "adaptive_spec" in each.name}
    assert list(said.values()) == ["adaptive_spec: a client has gone before its POST was whole"]
    assert client.app.state.endpoint.client.controller.status()["switches"] == 0


def test_a_server_that_was_not_asked_for_access_is_read_only(client: TestClient) -> None:
    client.app.state.endpoint.routes.access = OperatorRoutes(None, LOG).access
    assert client.post(PATH, json={"mode": "off"}).status_code == 403
    assert client.get(PATH).status_code == 200


def test_the_refused_method_is_told_both_that_work(client: TestClient) -> None:
    answer = client.delete(PATH)
    assert answer.status_code == 405
    assert {"GET", "POST"} <= set(answer.headers["allow"].split(", "))


def test_the_admin_key_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    assert admin_key(LOG, {"ADAPTIVE_SPEC_ADMIN_KEY_FILE": str(file)}) == KEY
    for bad in (str(tmp_path / "none"), str(tmp_path)):
        with pytest.raises(ConfigError, match="ADAPTIVE_SPEC_ADMIN_KEY_FILE"):
            admin_key(LOG, {"ADAPTIVE_SPEC_ADMIN_KEY_FILE": bad})
    for bad in ("short", "Ünicode-key", "with\nnewline"):
        with pytest.raises(ConfigError, match="printable ASCII"):
            admin_key(LOG, {"ADAPTIVE_SPEC_ADMIN_KEY": bad})
    for bad in (" " * 8, f"{KEY} ", f" {KEY}"):  # no header can carry these
        with pytest.raises(ConfigError, match="no blank at an end"):
            admin_key(LOG, {"ADAPTIVE_SPEC_ADMIN_KEY": bad})
    assert admin_key(LOG, {"ADAPTIVE_SPEC_ADMIN_KEY": "key with blanks"}) == "key with blanks"
    file.write_text("")
    with pytest.raises(ConfigError, match="printable ASCII"):
        admin_key(LOG, {"ADAPTIVE_SPEC_ADMIN_KEY_FILE": str(file)})


def test_a_key_file_that_others_may_read_or_write_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environ = {"ADAPTIVE_SPEC_ADMIN_KEY_FILE": str(tmp_path / "key")}
    (tmp_path / "key").write_text(KEY)
    said = []
    for mode in (0o600, 0o640, 0o644):
        (tmp_path / "key").chmod(mode)
        assert admin_key(LOG, environ) == KEY
        said.append("read by every user" in caplog.text)
    assert said == [False, False, True]
    (tmp_path / "key").chmod(0o602)
    with pytest.raises(ConfigError, match="may be written by every user"):
        admin_key(LOG, environ)


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"[" * 30_000, 400),
        (b'{"options": ' + b'{"a":' * 5_000, 400),
        (b'{"options": {"latency_strength": Infinity}}', 400),
        (b'{"options": {"latency_strength": 1e999}}', 400),
        (b'{"options": {"k": ' + b"9" * 6000 + b"}}", 400),
        (b'{"mode": "\xff"}', 400),
        (b'{"mode": "faster"}', 400),
        (b'{"policy": "goodput", "options": {"profile": "/etc/passwd"}}', 400),
        (b"[1]", 400),
        (b"", 400),
        (b" " * 100_000, 413),
    ],
    ids=range(11),
)
def test_what_cannot_be_obeyed_is_one_line_and_status_still_answers(
    client: TestClient, content: bytes, status: int
) -> None:
    answer = client.post(PATH, content=content, headers=JSON)
    assert answer.status_code == status
    assert "\n" not in answer.json()["error"]
    found = client.get(PATH)
    assert found.status_code == 200
    assert found.json()["engines"][0]["status"]["switches"] == 0


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_only_json_switches(client: TestClient, kind: str) -> None:
    body = json.dumps({"mode": "off"})
    assert client.post(PATH, content=body, headers={"Content-Type": kind}).status_code == 415
    kind = "application/json; charset=utf-8"
    answer = client.post(PATH, content=body, headers={"Content-Type": kind})
    assert answer.json()["engines"][0]["status"]["mode"] == "off"


def test_parts_come_where_they_are_asked_for(client: TestClient) -> None:
    for query, parts in (
        ("", set()),
        ("?history=1", {"history"}),
        ("?break_even=1", {"break_even"}),
    ):
        [engine] = client.get(PATH + query).json()["engines"]
        assert set(engine) == {"engine", "status", *parts}
    assert engine["break_even"] == {}, "static knows no step times"


@pytest.mark.parametrize("path", VIEWS)
def test_the_view_is_one_page_that_may_fetch_from_its_own_server_only(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert "connect-src 'self'" in answer.headers["content-security-policy"]
    urls = re.findall(r"https?://[^\"]+", answer.text)
    assert set(urls) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    assert not re.search(r"<(link|img|iframe)|src=", answer.text)
