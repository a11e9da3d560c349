"""Everything at once on a real server: every answer is right, and in minutes nothing grows.

Clients ask for greedy and sampled text and for JSON, opt out, send hints that no one understands
and leave in mid-stream; readers and operators are at it all the time; in the long test the engine's
process is stopped and goes on. Each greedy answer is compared with that of an engine without plugin
and speculation.
"""

import contextlib
import http.client
import json
import random
import signal
import threading
import time
import urllib.error
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scenarios import SCHEMA, prompts
from server import API_KEY, AT_START, Server, serving

psutil = pytest.importorskip("psutil", reason="the stage with vLLM runs these tests")
pytestmark = pytest.mark.http

SECONDS, WARM_UP_SECONDS, CLIENTS, TOKENS = 300.0, 60.0, 8, 48
ENOUGH = {"compared": 60, "left": 4, "read": 4, "switched": 6}
"""Counts at which the short test ends."""
PATH = "/v1/adaptive_spec"
TEXTS = prompts(16, 41)
HINTS: tuple[dict[str, Any], ...] = (
    {},
    {"adaptive_spec_off": 1},
    {"adaptive_spec_k_cap": 1, "adaptive_spec_task": "code"},
    {"adaptive_spec_tpot_ms": 12.5, "adaptive_spec_task": "__proto__"},
    {"adaptive_spec_off": "perhaps", "adaptive_spec_k_cap": -7},
    {"adaptive_spec_tpot_ms": "soon", "adaptive_spec_k_cap": 1e300},
    {"adaptive_spec_kcap": 3, "adaptive_spec_": 0, "adaptive-spec-off": 1},
    {"adaptive_spec_task": "\x1b[31m" + "x" * 4000, "adaptive_spec_k_cap": "[1, 2]"},
)
OPTIONS: tuple[dict[str, Any], ...] = (
    *({}, {}, {"temperature": 0.9, "top_p": 1e-6}),  # one possible answer, drawn
    {"temperature": 0.8, "n": 2},
    {"structured_outputs": {"json": SCHEMA}, "max_tokens": 100, "ignore_eos": False},
)
AUDITED = {"share": 0.25, "arms": ["engine", "none"], "guard": True}
SWITCHES: tuple[dict[str, Any], ...] = (
    {"mode": "on", "policy": "goodput"},
    {"mode": "on", "policy": "static", "options": {"k": 3}},
    {"mode": "on", "policy": "bandit"},
    {"mode": "on", "policy": "off"},
    {"mode": "shadow"},
    {"mode": "off"},
    {"audit": {"share": 0.1, "arms": ["engine"], "minutes": 0.1}},
    {"audit": AUDITED},
)
REFUSED: tuple[Any, ...] = (
    {"mode": "faster"},
    {"policy": "os:system"},
    {"policy": "static", "options": {"k": 1e9}},
    [],
)
GETS = (PATH, f"{PATH}?break_even=1", f"{PATH}?history=1", f"{PATH}/view", "/metrics", "/health")


class Footprint(NamedTuple):
    """Sums over all processes of a server."""

    descriptors: int
    threads: int
    mebibytes: float


def processes(server: Server) -> list[psutil.Process]:
    root = psutil.Process(server.process.pid)
    return [root, *root.children(recursive=True)]


def footprint(server: Server) -> Footprint:
    """Measure once the server has closed what its clients have closed."""
    time.sleep(3.0)
    each = processes(server)
    return Footprint(
        sum(process.num_fds() for process in each),
        sum(process.num_threads() for process in each),
        sum(process.memory_info().rss for process in each) / 2**20,
    )


class Chaos:
    """Clients, readers, an operator and signals, all at once."""

    def __init__(self, server: Server, known: dict[str, tuple[int, ...]]) -> None:
        self._server, self._known = server, known
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.done: Counter[str] = Counter()
        self.tokens = 0
        self.wrong: list[Any] = []

    def last(self, seconds: float, enough: Mapping[str, int] | None = None) -> None:
        """Let it go on so long; raises what a thread raises, such as a request that is lost.

        Where `enough` says what is to be done, until that is done, and nothing stops the engine.
        """
        others = [self._reader, self._operator, *([] if enough else [self._stopper])]
        self._stop.clear()
        with ThreadPoolExecutor(CLIENTS + 3) as threads:
            under_way = [threads.submit(self._client, seed) for seed in range(CLIENTS)]
            under_way += map(threads.submit, others)
            ends = time.monotonic() + seconds
            while time.monotonic() < ends and not any(each.done() for each in under_way):
                if enough and all(self.done[what] >= count for what, count in enough.items()):
                    break
                time.sleep(0.5)
            self._stop.set()
            for each in under_way:
                each.result()

    def _count(self, what: str, tokens: int = 0) -> None:
        with self._lock:
            self.done[what] += 1
            self.tokens += tokens

    def _client(self, seed: int) -> None:
        chosen = random.Random(seed)
        while not self._stop.is_set():
            text, hints = chosen.choice(TEXTS), chosen.choice(HINTS)
            if chosen.random() < 0.1:
                self._leave(text, hints, chosen.randrange(12))
                continue
            options = chosen.choice(OPTIONS)
            most = chosen.choice((1, 2, 7, TOKENS, TOKENS))
            asked = {"max_tokens": most, "vllm_xargs": hints} | options
            choices = self._server.complete(text, **asked)["choices"]
            for choice in choices:
                if not self._right(text, most, options, choice):
                    self.wrong.append((text, asked, choice))
                self._count("compared", len(choice["token_ids"]))

    def _right(self, text: str, most: int, options: dict[str, Any], choice: Any) -> bool:
        found = tuple(choice["token_ids"])
        if "structured_outputs" in options:
            whole = choice["finish_reason"] == "stop"
            return not whole or set(json.loads(choice["text"])) == set(SCHEMA["properties"])
        return len(found) == most if "n" in options else found == self._known[text][:most]

    def _leave(self, text: str, hints: dict[str, Any], lines: int) -> None:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self._server.url).netloc)
        body = {"model": "bench", "prompt": text, "max_tokens": 200, "stream": True}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"}
        body |= {"vllm_xargs": hints, "ignore_eos": True, "temperature": 0}
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            if lines:
                reply = connection.getresponse()
                assert reply.status == 200, reply.read()
                for _ in range(lines):
                    reply.readline()
        self._count("left")

    def _every(self, seconds: float, seed: int) -> Iterator[random.Random]:
        chosen = random.Random(seed)
        while not self._stop.wait(chosen.random() * 2.0 * seconds):
            yield chosen

    def _reader(self) -> None:
        for chosen in self._every(0.1, 101):
            self._server.ask(chosen.choice(GETS), admin="")
            self._count("read")

    def _operator(self) -> None:
        for chosen in self._every(0.6, 102):
            if chosen.random() < 0.2:
                with pytest.raises(urllib.error.HTTPError, match=r"400|422"):
                    self._server.ask(PATH, chosen.choice(REFUSED))
                self._count("refused")
            else:
                self._server.ask(PATH, chosen.choice(SWITCHES))
                self._count("switched")

    def _stopper(self) -> None:
        [core] = [each for each in processes(self._server) if "EngineCore" in each.name()]
        for chosen in self._every(10.0, 103):
            core.send_signal(signal.SIGSTOP)
            time.sleep(chosen.choice((0.2, 1.0, 4.0)))
            core.send_signal(signal.SIGCONT)
            self._count("stopped")


def test_every_answer_is_right_while_clients_leave_and_operators_switch(
    switched: Server, unspeculated: dict[str, tuple[int, ...]]
) -> None:
    chaos, before = Chaos(switched, unspeculated), switched.engine()
    chaos.last(SECONDS, ENOUGH)
    switched.ask(PATH, AT_START | {"audit": {"share": 0}})
    switched.wait_for(lambda: switched.engine()["live_requests"] == 0, "requests that have ended")
    assert chaos.wrong == []
    assert all(chaos.done[what] >= count for what, count in ENOUGH.items())
    after = switched.engine()
    assert after["fail_opens"] == before["fail_opens"] == {}
    assert after["switches"] - before["switches"] == chaos.done["switched"] + 1


@pytest.mark.long
@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_nothing_is_lost_or_wrong_and_nothing_grows(
    method: str,
    models: dict[str, Path],
    unspeculated: dict[str, tuple[int, ...]],
    tmp_path: Path,
) -> None:
    adaptive = {"policy": "goodput", "audit": AUDITED}
    with serving(models, tmp_path, adaptive, method=method) as server:
        chaos = Chaos(server, unspeculated)
        chaos.last(WARM_UP_SECONDS)
        before = footprint(server)
        chaos.last(SECONDS)
        after = footprint(server)
        server.ask(PATH, {"mode": "on", "policy": "goodput"})
        for text in TEXTS:
            [choice] = server.complete(text, max_tokens=TOKENS)["choices"]
            assert tuple(choice["token_ids"]) == unspeculated[text]
        status = server.engine()
    print(method, dict(chaos.done), chaos.tokens, "tokens", before, after, status["fail_opens"])
    assert chaos.wrong == []
    assert chaos.done["compared"] > 200
    assert min(chaos.done[what] for what in ("left", "read", "switched", "refused", "stopped")) > 3
    assert status["live_requests"] == 0
    assert status["verified_tokens"] > 0
    assert "fault" not in status["audit"]
    assert status["audit"]["share"] > 0.0
    # A decision in which the process is stopped is late.
    assert set(status["fail_opens"]) <= {"plan took"}
    assert after.descriptors <= before.descriptors + 4
    assert after.threads <= before.threads + 2
    assert after.mebibytes <= before.mebibytes + 48.0
