"""A real `python -m sglang.launch_server` with the plugin, reached over HTTP."""

import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from records import outcomes, plans, read, read_settled, status
from serving import LADDER, PATIENT, arguments, command_line, environment, write_config
from traffic import one_by_one

from tests.engine_processes import free_port, running_server

pytestmark = pytest.mark.http

START_SECONDS = 400
JOBS = one_by_one()
TEXTS = [job.prompt for job in JOBS]
MAX_TOKENS = 40


class Server:
    """A server and the files it writes."""

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log_file = folder / "server.log"
        self.status_file = folder / "status.json"
        self.record_file = folder / "record.jsonl"

    def post(self, route: str, body: Any) -> Any:
        request = urllib.request.Request(
            self.url + route, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=200) as reply:
            return json.load(reply)

    def generate(self, name: str, text: str, **sampling: Any) -> Any:
        """One greedy request by SGLang's own route."""
        options = {"temperature": 0, "max_new_tokens": MAX_TOKENS, "ignore_eos": True} | sampling
        return self.post("/generate", {"rid": name, "text": text, "sampling_params": options})

    def plans(self, since: int = 0) -> list[dict[str, Any]]:
        return plans(read(self.record_file, since))

    def lines(self) -> int:
        return len(read(self.record_file))


@pytest.fixture(scope="module")
def expected(reference: dict[str, Any], shelf: Any) -> list[list[int]]:
    """Tokens without speculation."""
    shelf.clear()
    return [reference[job.name].tokens for job in JOBS]


@pytest.fixture(scope="module")
def server(
    models: dict[str, Path], expected: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    server = Server(folder, port)
    config = write_config(
        folder,
        policy="recorded_policies:CyclePolicy",
        status_file=str(server.status_file),
        memory_guard=False,
        fail_open=PATIENT,
    )
    options = arguments(models, folder, "ADAPTIVE_NGRAM") | {
        "host": "127.0.0.1",
        "port": port,
        "enable_metrics": True,
    }
    command = [sys.executable, "-m", "sglang.launch_server", *command_line(options)]
    variables = environment(config=config, RECORD=str(server.record_file))
    with running_server(command, variables, server.url, server.log_file, START_SECONDS):
        yield server


def test_greedy_tokens_are_those_without_speculation(
    server: Server, expected: list[list[int]]
) -> None:
    with ThreadPoolExecutor(len(TEXTS)) as clients:
        names = [f"text-{index}" for index in range(len(TEXTS))]
        answers = list(clients.map(server.generate, names, TEXTS))
    assert [answer["output_ids"] for answer in answers] == expected
    assert sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers) > 20
    assert {line["k"] for line in server.plans()} == set(LADDER)


def test_the_openai_route_gives_the_same_text(server: Server) -> None:
    body = {"model": "x", "prompt": TEXTS[0], "max_tokens": 16, "temperature": 0}
    own = server.generate("own-route", TEXTS[0], max_new_tokens=16, ignore_eos=False)
    answer = server.post(
        "/v1/completions", body | {"custom_params": {"adaptive_spec": {"task": "openai"}}}
    )
    assert answer["choices"][0]["text"] == own["text"]


def test_hints_arrive_through_custom_params(server: Server, expected: list[list[int]]) -> None:
    since = server.lines()
    hints = {"adaptive_spec": {"k_cap": 1, "task": "translate"}}
    answer = server.generate("hinted", TEXTS[1], custom_params=hints)
    assert answer["output_ids"] == expected[1]
    seen = [line for line in server.plans(since) if line["ids"] == ["hinted"]]
    assert seen
    assert max(max(line["available"]) for line in seen) == 1
    assert all(line["task"][0] >= 0 for line in seen)
    plain = server.generate("plain", TEXTS[1])
    assert plain["output_ids"] == expected[1]
    after = [line for line in server.plans(since) if line["ids"] == ["plain"]]
    assert max(max(line["available"]) for line in after) > 1
    assert all(line["task"] == [-1] for line in after)


def test_a_bad_hint_is_counted_and_the_request_answered(
    server: Server, expected: list[list[int]]
) -> None:
    hints = {"adaptive_spec": {"k_cap": "many"}}
    answer = server.generate("bad-hint", TEXTS[2], custom_params=hints)
    assert answer["output_ids"] == expected[2]
    assert wait_for(server, lambda found: found["ignored_hints"])["adaptive_spec.k_cap"] == 1


def wait_for(server: Server, look: Any) -> Any:
    """A value of the status file that isn't empty; the file follows within about a second."""
    for turn in range(60):
        if server.status_file.exists() and (found := look(status(server.status_file))):
            return found
        server.generate(f"wait-{time.monotonic_ns()}-{turn}", TEXTS[3], max_new_tokens=4)
        time.sleep(0.25)
    pytest.fail("the status file did not follow")


def test_the_switch_works_while_the_server_runs(server: Server, expected: list[list[int]]) -> None:
    for number, mode in ((0, "off"), (1, "shadow"), (2, "on")):
        said = server.post("/set_internal_state", {"server_args": {"adaptive_spec_mode": number}})
        assert said == [True]
        since = server.lines()
        answer = server.generate(f"mode-{mode}", TEXTS[4])
        assert answer["output_ids"] == expected[4], mode
        lines = read_settled(server.record_file, since)
        asked, ran = plans(lines), outcomes(lines)
        if mode == "off":
            assert asked == []
        elif mode == "shadow":
            assert asked
            engine_k = {line["step"]: line["engine_k"] for line in asked}
            for line in ran:
                assert max(line["verified"]) <= engine_k[line["step"]]
        else:
            assert {line["k"] for line in asked} == set(LADDER)


def metric_lines(server: Server) -> list[str]:
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as reply:
        lines: list[str] = reply.read().decode().splitlines()
    return [line for line in lines if line.startswith("adaptive_spec_")]


def test_an_idle_server_shows_a_switch_at_once(server: Server) -> None:
    for number, mode in ((1, "shadow"), (2, "on")):
        server.post("/set_internal_state", {"server_args": {"adaptive_spec_mode": number}})
        assert status(server.status_file)["mode"] == mode
        states = [line for line in metric_lines(server) if line.startswith("adaptive_spec_state{")]
        active = [line for line in states if line.endswith(" 1.0")]
        assert len(active) == 1
        assert f'mode="{mode}"' in active[0]
        assert 'model_name=""' not in active[0]


def test_metrics_are_served(server: Server) -> None:
    found = {
        line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in metric_lines(server)
    }
    for name in ("verified_tokens", "accepted_tokens", "emitted_tokens"):
        assert found[f"adaptive_spec_{name}_total"] > 0
    assert (
        found["adaptive_spec_accepted_tokens_total"] <= found["adaptive_spec_verified_tokens_total"]
    )
    assert "adaptive_spec_draft_depth" in found


def test_one_start_line(server: Server) -> None:
    lines = [
        line
        for line in server.log_file.read_text(errors="replace").splitlines()
        if "adaptive_spec: mode=" in line
    ]
    assert len(lines) == 1
    for part in ("policy=cycle", "method=ADAPTIVE_NGRAM ", "ladder=0,1,2,3 ", "hooks=9/9"):
        assert part in lines[0]
    log = server.log_file.read_text(errors="replace")
    assert "Traceback" not in log
