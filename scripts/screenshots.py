"""Make the pictures of commands and pages in docs/images, with headless Chromium.

    python scripts/screenshots.py [view] [top] [advise] [report]

The live view and `top` show a simulated server (acceptance recorded from vLLM on a CPU, costs of an
H100) at 4, 32 and 96 clients. `advise` reads a trace in benchmarks/results and takes seconds;
`report` shows a small sweep. They need Chromium beside the environment `dev`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import resources
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

from adaptive_spec.commands.top import screen
from adaptive_spec.operation.status import History
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.commands.advise import advise as advice_command
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.registry import hardware
from adaptive_spec.sim.load.arrivals import Piece
from adaptive_spec.sim.load.base import VaryingClosedLoad
from adaptive_spec.sim.load.request import requests_of

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
COMMANDS = Path(sys.executable).parent
TRACE = ROOT / "benchmarks" / "results" / "vllm_cpu-costs.jsonl.gz"
KMAX = 6
Phases = tuple[tuple[float, int], ...]
"""Seconds, clients."""
PHASES: Phases = ((20.0, 4), (20.0, 32), (20.0, 96))
FRAME = 860, 400
"""Width and height of a frame of the moving picture in pixels."""
FRAMES_A_PAGE = 16
FRAME_STYLE = (
    f"<style>body {{ margin: 0 }} div {{ height: {FRAME[1]}px; overflow: hidden }}"
    " pre { margin: 8px; font: 13px/17px monospace }</style>"
)
Status = dict[str, Any]


def statuses(phases: Phases = PHASES) -> list[Status]:
    """Status of a simulated server after each second."""
    data = load_acceptance(["record:good_t0.8"], drafter_list="eagle", seed=0, kmax=KMAX)
    pieces = [Piece(seconds, clients, clients) for seconds, clients in phases]
    engine = Engine(
        VaryingClosedLoad(requests_of(data, seed=0), pieces),
        data,
        drafter("eagle"),
        hardware("h100-llama-8b"),
        build_policy("goodput"),
        EngineOptions(max_draft_tokens=KMAX),
        counts=True,
    )
    found = []
    for second in range(round(sum(seconds for seconds, _ in phases))):
        engine.run(max_seconds=second + 1.0)
        table = engine.controller.break_even()
        found.append(engine.controller.status() | {"break_even": table})
    while not any(words in found[-1]["why"] for words in ("would cost", "OFF since")):
        found.pop()  # until the last step says what a further draft would cost, or why none pays
    return found


def history(found: list[Status]) -> dict[str, Any]:
    """Rows of these statuses as a server keeps them, a second apart, the last one just now."""
    kept = History()
    for second, status in enumerate(found):
        kept.add(2.0 * second, status)
    rows = kept.snapshot()
    for place, row in enumerate(rows["rows"]):
        row[0] = time.time() - len(found) + place
    return rows


class Handler(BaseHTTPRequestHandler):
    """Serves the page with the history of all statuses but the last, which is the present one."""

    def __init__(self, found: list[Status], *arguments: Any) -> None:
        self.found = found
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answer with the page or with a status."""
        path, _, query = self.path.partition("?")
        if path.endswith("/view"):
            page = resources.files("adaptive_spec.operation").joinpath("view.html")
            body, kind = page.read_bytes(), "text/html"
        elif path.endswith("/adaptive_spec"):
            status = self.found[-1] | {"written": time.time(), "idle_seconds": 0.0}
            answer = {"engine": 0, "break_even": status.pop("break_even"), "status": status}
            if "history" in query:
                answer["history"] = history(self.found[:-1])
            body, kind = json.dumps({"engines": [answer]}).encode(), "application/json"
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


def shot(url: str, path: Path, width: int, height: int) -> None:
    """Write a picture of a page as it is after a second."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("error: no chromium: apt install chromium")
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--window-size={width},{height}", f"--screenshot={path}"),
            *("--virtual-time-budget=900", url),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    # Few colours: a third of the bytes, which every clone and every GPU machine has to take.
    Image.open(path).convert("RGB").quantize(128, method=Image.Quantize.MAXCOVERAGE).save(
        path, optimize=True
    )
    print(path)


def view() -> None:
    """Pictures of the page at /v1/adaptive_spec/view, on a screen and on a phone."""
    server = HTTPServer(("127.0.0.1", 0), partial(Handler, statuses()))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/adaptive_spec/view"
    shot(url, IMAGES / "view.png", 1440, 1640)
    shot(url, IMAGES / "view-phone.png", 390, 3000)
    server.shutdown()


def top() -> None:
    """Moving picture of `adaptive-spec top`, every two seconds, while 1, 64 and 1 clients ask."""
    found = statuses(phases=((15.0, 1), (15.0, 64), (15.0, 1)))
    frames: list[Image.Image] = []
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "top.html"), Path(folder, "top.png")
        # Many frames below each other in one page, as each start of a browser takes a second.
        pairs = list(pairwise(found))[::2]
        for begin in range(0, len(pairs), FRAMES_A_PAGE):
            rows = pairs[begin : begin + FRAMES_A_PAGE]
            shown = "".join(f"<div>{top_screen(before, now)}</div>" for before, now in rows)
            page.write_text(f"{FRAME_STYLE}{shown}", encoding="utf-8")
            shot(page.as_uri(), picture, FRAME[0], FRAME[1] * FRAMES_A_PAGE)
            whole = Image.open(picture)
            boxes = ((0, FRAME[1] * n, FRAME[0], FRAME[1] * (n + 1)) for n in range(len(rows)))
            frames += [whole.crop(box).quantize(6) for box in boxes]
    first, *others = frames
    path = IMAGES / "top.gif"
    first.save(path, save_all=True, append_images=others, duration=700, loop=0, optimize=True)
    print(path)


def top_screen(before: Status, now: Status) -> str:
    """HTML of the screen of `top`."""
    console = Console(record=True, width=100, force_terminal=True, file=StringIO())
    console.print(screen({"0": now}, {"0": before}, 1.0))
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def advise() -> None:
    """Picture of the page of `adaptive-spec advise`."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "advice.html")
        advice_command([TRACE], drafter="draft_model", html=page)
        shot(page.as_uri(), IMAGES / "advise.png", 1280, 1100)


SWEEP = """
policies: [off, "static:k=3", goodput]
acceptance: {mixed: "record:good_t0.8", code: "record:good_t0.8:code"}
drafters: [eagle]
hardware: [h100-llama-8b]
loads: ["closed:4", "closed:32", "closed:128"]
tokens: 20000
engine: {max_draft_tokens: 6}
"""


def report() -> None:
    """Picture of the page of `adaptive-spec report`."""
    with tempfile.TemporaryDirectory() as folder:
        config, output = Path(folder, "sweep.yaml"), Path(folder, "out")
        config.write_text(SWEEP)
        for command in (("sweep", config, "--output", output), ("report", output)):
            subprocess.run([COMMANDS / "adaptive-spec", *command], check=True)
        shot(output.joinpath("report", "report.html").as_uri(), IMAGES / "report.png", 1100, 900)


PICTURES = {each.__name__: each for each in (view, top, advise, report)}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
