"""A real `python -m sglang.launch_server` with the plugin, reached over HTTP."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from records import outcomes, plans, read, read_settled, status
from serving import LADDER, PATIENT, ROOT, arguments, command_line, environment, write_config
from traffic import one_by_one

from adaptive_spec.commands.prove import EXIT
from adaptive_spec.operation.http_routes import PATH
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

    def get(self, route: str, **headers: str) -> Any:
        request = urllib.request.Request(self.url + route, headers=headers)
        with urllib.request.urlopen(request, timeout=200) as reply:
            return json.load(reply)

    def switch(self, **request: Any) -> dict[str, Any]:
        """Switch the only engine by our route; its status afterwards."""
        [engine] = self.post(PATH, request)["engines"]
        assert engine["engine"] == 0
        found: dict[str, Any] = engine["status"]
        return found

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
    for mode in ("off", "shadow", "on"):
        assert server.switch(mode=mode)["mode"] == mode
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


def test_our_route_switches_policy_and_options_and_tells_the_status(
    server: Server, expected: list[list[int]]
) -> None:
    now = server.switch(mode="on", policy="static", options={"k": 2})
    assert (now["policy"], now["options"]) == ("static", {"k": 2})
    before = now["requests_by_k"].get("2", 0)
    assert server.generate("static", TEXTS[4])["output_ids"] == expected[4]
    [engine] = server.get(f"{PATH}?history=1&break_even=1")["engines"]
    assert set(engine) == {"engine", "status", "history", "break_even"}
    assert engine["status"]["requests_by_k"]["2"] > before
    assert status(server.status_file)["policy"] == "static"
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.post(PATH, {"policy": "faster"})
    assert refused.value.code == 400
    assert "choose one of" in json.load(refused.value)["error"]
    assert server.switch(policy="recorded_policies:CyclePolicy")["options"] == {}


def test_a_page_of_another_origin_neither_switches_nor_sees_files(server: Server) -> None:
    assert "options" in server.get(PATH)["engines"][0]["status"]
    assert "options" not in server.get(PATH, Origin="http://x.example")["engines"][0]["status"]
    body, kind = b'{"mode": "off"}', {"Content-Type": "application/json"}
    request = urllib.request.Request(server.url + PATH, body, kind | {"Origin": "http://x.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == 403
    assert server.get(PATH)["engines"][0]["status"]["mode"] == "on"


def test_sglangs_own_state_is_as_before(server: Server) -> None:
    [state] = server.get("/server_info")["internal_states"]
    assert "last_gen_throughput" in state
    assert "adaptive_spec" not in state


@contextmanager
def load(server: Server) -> Iterator[list[list[list[int]]]]:
    """Clients that send all texts again and again; the tokens of each round are in the list."""
    ended, rounds = threading.Event(), list[list[list[int]]]()

    def serve() -> None:
        with ThreadPoolExecutor(len(TEXTS)) as clients:
            while not ended.is_set():
                names = [f"load-{len(rounds)}-{index}" for index in range(len(TEXTS))]
                answers = clients.map(server.generate, names, TEXTS)
                rounds.append([answer["output_ids"] for answer in answers])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield rounds
    finally:
        ended.set()
        thread.join()


def command(server: Server, name: str, *options: str) -> tuple[int, str]:
    """Exit status and output of a command of ours that is given the server's address."""
    place = server.url.removeprefix("http://")
    words = [sys.executable, "-m", "adaptive_spec", name, place, *options]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr.strip()
    return done.returncode, done.stdout


def test_top_and_breakeven_read_a_server_under_load(
    server: Server, expected: list[list[int]]
) -> None:
    server.switch(mode="on", policy="goodput")
    with load(server) as rounds:
        ended, said = command(server, "top", "--once", "--every", "1")
        assert ended == 0
        assert "goodput" in said
        for _ in range(200):
            ended, said = command(server, "breakeven", "--json")
            if any(json.loads(said).values()):
                break
            time.sleep(0.5)
    assert (ended, list(json.loads(said))) == (0, ["0"])
    assert rounds
    assert all(answers == expected for answers in rounds)
    server.switch(policy="recorded_policies:CyclePolicy")


@pytest.mark.long
def test_prove_compares_both_arms_and_leaves_the_server_as_it_was(
    server: Server, expected: list[list[int]]
) -> None:
    server.switch(mode="on", policy="static", options={"k": 0})
    arms = ("--arms", "engine,none", "--share", "0.25", "--at-least", "900")
    with load(server) as rounds:
        ended, said = command(server, "prove", "--minutes", "2", "--json", *arms)
    proof = json.loads(said)
    assert ended == EXIT[proof["answer"]] != EXIT["yes"]
    assert set(proof["arms"]) == {"engine", "none"}
    assert all(gain["blocks"] > 0 for gain in proof["arms"].values())
    assert all(answers == expected for answers in rounds)
    now = server.switch(policy="recorded_policies:CyclePolicy")["audit"]
    assert (now["share"], now["proof_seconds_left"]) == (0.01, 0)


def metric_lines(server: Server) -> list[str]:
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as reply:
        lines: list[str] = reply.read().decode().splitlines()
    return [line for line in lines if line.startswith("adaptive_spec_")]


def test_an_idle_server_shows_a_switch_at_once(server: Server) -> None:
    for mode in ("shadow", "on"):
        server.switch(mode=mode)
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
