"""The live view in headless Chromium, against a small server that demands a key."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt install chromium")

HOSTILE = "<img src=x onerror=alert(1)>"


class Handler(BaseHTTPRequestHandler):
    readings = 0

    def do_GET(self) -> None:
        if self.path == "/adaptive_spec/view":
            self.answer(200, resources.files("adaptive_spec.operation").joinpath("view.html"))
        elif self.headers["Authorization"] != "Bearer secret":
            self.answer(401, b'{"error": "Unauthorized"}')
        else:
            type(self).readings += 1
            n = self.readings
            status = {
                "mode": "on",
                "policy": "goodput",
                "steps": 10 * n,
                "verified_tokens": 60 * n,
                "accepted_tokens": 45 * n,
                "emitted_tokens": 65 * n,
                "requests_by_k": {"0": 5 * n, "3": 15 * n},
                "max_draft_tokens": 3,
                "last_depth": 3,
                "last_reason": HOSTILE,
                "estimates": {"no_speculation": 50.0, "engine_k": 80.0, "planned": 100.0},
                "fail_opens": {"plan raised": 2},
            }
            body = {"engines": [{"engine": 0, "status": status}]}
            self.answer(200, json.dumps(body).encode())

    def answer(self, code: int, body: object) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else body.read_bytes())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/adaptive_spec/view"
    server.shutdown()
    server.server_close()


def page(url: str, profile: Path) -> str:
    """The page after some virtual seconds."""
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"),
        *("--virtual-time-budget=4500", "--dump-dom", url),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    return done.stdout.split("<script>")[0]


def test_without_the_key_there_are_no_figures_and_the_page_asks_for_it(url, tmp_path):
    shown = page(url, tmp_path)
    assert "Unauthorized" in shown
    assert re.search(r'<form id="form">', shown)
    assert "engine 0" not in shown


def test_with_the_key_it_shows_figures_and_treats_them_as_text(url, tmp_path):
    shown = page(f"{url}#key=secret", tmp_path)
    assert "engine 0" in shown
    assert "75 %" in shown  # acceptance, and the share of K = 3
    assert "plan raised 2" in shown
    assert shown.count("<polyline") >= 8
    assert HOSTILE not in shown
    assert "&lt;img" in shown
