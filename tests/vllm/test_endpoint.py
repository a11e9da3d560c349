"""The switch over HTTP answers with one line, whatever is sent; no engine runs here."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="comes with vLLM; the stage with vLLM runs these tests")

from fastapi import FastAPI
from fastapi.testclient import TestClient

from adaptive_spec import Capability, Config, Controller, Level
from adaptive_spec.adapters.vllm.control import adaptive_spec_control
from adaptive_spec.adapters.vllm.endpoint import PATH, VIEWS, ControlEndpoint

JSON = {"Content-Type": "application/json"}


class OneEngine:
    """Stands in for vLLM's client of its engines."""

    def __init__(self) -> None:
        self.controller = Controller.from_config(
            Config(policy="static", kernel="numpy"),
            Capability(level=Level.FULL, max_draft_tokens=4),
        )
        self._core = SimpleNamespace(
            scheduler=SimpleNamespace(adaptive_spec=SimpleNamespace(controller=self.controller)),
            vllm_config=SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=0)),
        )

    async def call_utility_all_async(self, method: str, *body: Any) -> list[Any]:
        return [adaptive_spec_control(self._core, *body)]


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    ControlEndpoint().attach_router(app)
    app.state.adaptive_spec_client = OneEngine()
    return TestClient(app, raise_server_exceptions=False)


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


@pytest.mark.parametrize("path", VIEWS)
def test_the_view_is_one_page_that_may_fetch_from_its_own_server_only(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert "connect-src 'self'" in answer.headers["content-security-policy"]
    urls = re.findall(r"https?://[^\"]+", answer.text)
    assert set(urls) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    assert not re.search(r"<(link|img|iframe)|src=", answer.text)
