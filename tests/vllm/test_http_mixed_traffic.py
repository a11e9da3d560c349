"""Many clients of one server: some leave in mid-stream, the operator switches all the time."""

import http.client
import json
import random
import threading
import urllib.parse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from scenarios import SCHEMA, prompts
from server import API_KEY, AT_START, Server

pytestmark = pytest.mark.http

CLIENTS, REQUESTS = 10, 90
PATH = "/v1/adaptive_spec"
TEXTS = prompts(16, 41)
TOKENS = 48
SWITCHES: tuple[dict[str, Any], ...] = (
    AT_START,
    {"mode": "on", "policy": "goodput"},
    {"mode": "on", "policy": "static", "options": {"k": 3}},
    {"mode": "on", "policy": "off"},
    {"mode": "on", "policy": "bandit"},
    {"mode": "shadow"},
    {"mode": "off"},
)
HINTS: tuple[dict[str, Any], ...] = (
    {},
    {"adaptive_spec_k_cap": 1},
    {"adaptive_spec_off": 1},
    {"adaptive_spec_task": "summary", "adaptive_spec_tpot_ms": 40.5},
    {"adaptive_spec_tpot_ms": "soon"},  # ignored, and counted
)


class Clients:
    """Ask, each in a thread of its own; every greedy answer is known beforehand."""

    def __init__(self, server: Server, known: dict[str, tuple[int, ...]]) -> None:
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()
        self._server = server
        self._known = known
        self._lock = threading.Lock()

    def ask(self, number: int) -> None:
        """One request, of a kind that its number draws."""
        chosen = random.Random(number)
        kind = chosen.choice(("greedy", "greedy", "almost greedy", "sampled", "json", "leaves"))
        text = chosen.choice(TEXTS)
        options: dict[str, Any] = {
            "max_tokens": chosen.randint(1, TOKENS),
            "vllm_xargs": chosen.choice(HINTS),
        }
        if kind == "leaves":
            self._leave(text, options | {"max_tokens": 200, "temperature": 0})
        elif kind == "sampled":
            answer = self._server.complete(text, temperature=0.8, n=2, **options)
            for choice in answer["choices"]:
                self._check(kind, len(choice["token_ids"]) == options["max_tokens"], choice)
        elif kind == "json":
            options |= {"structured_outputs": {"json": SCHEMA}, "max_tokens": 100}
            [choice] = self._server.complete(text, ignore_eos=False, **options)["choices"]
            if choice["finish_reason"] == "stop":
                found = set(json.loads(choice["text"]))
                self._check(kind, found == set(SCHEMA["properties"]), choice)
        else:
            if kind == "almost greedy":
                options |= {"temperature": 0.9, "top_p": 1e-6}
            [choice] = self._server.complete(text, **options)["choices"]
            expected = self._known[text][: options["max_tokens"]]
            self._check(kind, tuple(choice["token_ids"]) == expected, choice)
        with self._lock:
            self.done[kind] += 1

    def _check(self, kind: str, good: bool, answer: Any) -> None:
        if not good:
            with self._lock:
                self.wrong.append(f"{kind}: {answer}")

    def _leave(self, text: str, options: dict[str, Any]) -> None:
        """Close the connection when the first tokens have come."""
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self._server.url).netloc)
        body = {"model": "bench", "prompt": text, "stream": True, "ignore_eos": True} | options
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        assert reply.status == 200
        reply.readline()
        connection.close()


def test_every_answer_is_right_while_clients_leave_and_operators_switch(
    switched: Server, unspeculated: dict[str, tuple[int, ...]]
) -> None:
    clients, stop = Clients(switched, unspeculated), threading.Event()
    before = switched.engine()

    def operate() -> Counter[str]:
        chosen, done = random.Random(1), Counter[str]()
        while not stop.wait(0.3):
            if chosen.random() < 0.1:
                done[f"refused {switched.refusal(PATH, {'mode': 'faster'})[0]}"] += 1
            else:
                switched.ask(PATH, chosen.choice(SWITCHES))
                done["obeyed"] += 1
        return done

    with ThreadPoolExecutor(CLIENTS + 1) as threads:
        operator = threads.submit(operate)
        try:
            for answered in [threads.submit(clients.ask, number) for number in range(REQUESTS)]:
                answered.result()
        finally:
            stop.set()
        switches = operator.result()
    assert clients.wrong == []
    assert sum(clients.done.values()) == REQUESTS
    assert clients.done["leaves"] > 10
    assert switches["obeyed"] > 3
    assert set(switches) <= {"obeyed", "refused 400"}
    switched.ask(PATH, AT_START)
    switched.wait_for(lambda: switched.engine()["live_requests"] == 0, "requests that have ended")
    after = switched.engine()
    assert after["fail_opens"] == before["fail_opens"] == {}
    assert after["verified_tokens"] > before["verified_tokens"]
    assert after["switches"] - before["switches"] == switches["obeyed"] + 1
