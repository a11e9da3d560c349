"""The live view in headless Chromium, against a small server that demands a key."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from adaptive_spec.operation.status import COLUMNS
from tests.http_servers import Handler, listening

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt install chromium")

LONG = "because " + " ".join(f"draft {j} is accepted {90 - j}%" for j in range(30))
NOW = time.time()
ROWS = [
    [
        NOW + n,
        10 * n + 200,
        20 * n,
        60 * n,
        45 * n,
        65 * n,
        3 * n,
        0,
        0,
        99,
        98,
        50.0,
        80.0,
        100.0,
        3,
    ]
    for n in range(-118, 0)
]
"""Seconds before the first reading; of an engine whose counts the readings go on from."""
CELL = {"batch": 16, "context": 512, "seen": True, "k": 2, "gain": [1.3, 1.42, 1.5]}
CELL["timed_without"] = False
NEEDED = {"1": [0.2, 0.25, 0.3], "2": [-0.1, 0.45, 0.6]}
TABLE = {
    "accepted": [0.7, 1.1],
    "now": CELL | {"batch": 14, "needed": NEEDED},
    "most": CELL | {"needed": NEEDED},
    "cells": [
        CELL | {"needed": NEEDED},
        CELL | {"batch": 64, "k": 0, "gain": [1.0, 1.0, 1.0], "seen": False, "needed": NEEDED},
    ],
}
HOSTILE = "<img src=x onerror=alert(1)>"


class View(Handler):
    table = TABLE
    readings = 0
    extra = b""

    def respond(self) -> None:
        if self.path == "/adaptive_spec/view":
            view = resources.files("adaptive_spec.operation").joinpath("view.html")
            self.answer(200, view.read_bytes() + self.extra)
        elif self.headers["Authorization"] != "Bearer secret":
            self.answer(401, b'{"error": "Unauthorized"}')
        else:
            type(self).readings += 1
            n = self.readings
            status = {
                "mode": "on",
                "policy": "goodput",
                "steps": 10 * n + 200,
                "verified_tokens": 60 * n,
                "accepted_tokens": 45 * n,
                "emitted_tokens": 65 * n,
                "requests_by_k": {"0": 5 * n, "3": 15 * n},
                "max_draft_tokens": 3,
                "steps_by_kind": {"planned": 7 * n, "measuring": 3 * n},
                "written": time.time(),
                "idle_seconds": 0.0,
                "why": f"K = 3: {HOSTILE} {LONG}",
                "drafts_by_task": {"code": [20, 10], "constructor": [4, 2], "__proto__": [4, 1]},
                "label_drift": {"code": [0.75, 0.25]},
                "last_depth": 3,
                "last_reason": HOSTILE,
                "estimates": {"no_speculation": 50.0, "engine_k": 80.0, "planned": 100.0},
                "audit": {
                    "share": 0.01,
                    "arms": {"engine": {"gain": 0.062, "low": 0.049, "high": 0.075, "blocks": 214}},
                    "handed_back": [],
                },
                "fail_opens": {"plan raised": 2},
                "events": {"requests_none_accepted": 4},
            }
            body = {"engines": [{"engine": 0, "status": status}]}
            if "history" in self.path:
                body["engines"][0]["history"] = {"columns": list(COLUMNS), "rows": ROWS}
            if "break_even" in self.path:
                body["engines"][0]["break_even"] = self.table
            self.answer(200, json.dumps(body).encode())


@pytest.fixture
def url() -> Iterator[str]:
    with listening(View) as server:
        yield f"http://127.0.0.1:{server.server_port}/adaptive_spec/view"


def page(url: str, profile: Path) -> str:
    """The page after some virtual seconds."""
    command = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"),
        *("--virtual-time-budget=4500", "--dump-dom", url),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    return done.stdout.split("<script>")[0]


@pytest.mark.parametrize(("low", "bold"), [(0.70, False), (0.72, True)])
def test_a_gain_whose_interval_holds_nothing_is_not_bold(url, tmp_path, monkeypatch, low, bold):
    """The estimated ratio is 2, its bounds are those of the best K, 1.42 times nothing."""
    wide = TABLE["now"] | {"gain": [low, 1.42, 1.5]}
    monkeypatch.setattr(View, "table", TABLE | {"now": wide})
    shown = page(f"{url}#key=secret", tmp_path)
    assert ('<b class="unsure">+100 %</b>' in shown) is not bold
    assert ("<b>+100 %</b>" in shown) is bold


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
    assert re.search(r"requests with no draft accepted, for too long</td><td[^>]*>4<", shown)
    assert re.search(r">code</td><td[^>]*>50 %<", shown), "no acceptance by task label"
    assert "first drafts: 25 %, before 75 %" in shown
    assert "+100 %" in shown  # 100 planned over 50 without speculation
    assert "+83 % to +111 %" in shown  # as its bounds are about the best K's gain
    assert "<b>+100 %</b>" in shown
    assert "measuring 30 %" in shown
    assert "+4.9 % to +7.5 %, 214 blocks" in shown
    assert "estimate, still learning" in shown
    assert LONG in shown
    assert (
        "14 requests of 512 tokens: a round of 2 must have 0.45 accepted drafts (0.00 to 0.60)"
        in shown
    )
    assert "it has 1.10. No step without drafts was timed" in shown
    assert re.search(r'class="seen"[^>]*>K = 2, 1.42 ×<', shown)
    assert re.search(r">~ off<", shown)
    assert shown.count("<polyline") >= 8
    assert "<polygon" in shown
    assert "10 to 90 % of requests: 0 to 3" in shown
    assert "tokens/s" in shown
    assert re.search(r">\d\d:\d\d:\d\d<", shown), "no time of day on an axis"
    assert HOSTILE not in shown
    assert "&lt;img" in shown


def test_nothing_is_wider_than_a_phone_and_history_is_drawn_at_once(url, tmp_path):
    probe = (
        "<script>setTimeout(() => { document.title = [document.documentElement.scrollWidth, "
        "innerWidth, document.querySelectorAll('polyline').length].join(' '); }, 4000);</script>"
    )
    View.extra = probe.encode()
    try:
        command = [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=390,900"),
            *(f"--user-data-dir={tmp_path}", "--virtual-time-budget=4500", "--dump-dom"),
            f"{url}#key=secret",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    finally:
        View.extra = b""
    found = re.search(r"<title>(\d+) (\d+) (\d+)", done.stdout)
    wide, window, drawn = map(int, found.groups())
    assert wide <= window
    assert drawn >= 8
