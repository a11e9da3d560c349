"""A real `vllm serve` with the plugin, in its own processes, reached over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from engines import ENVIRONMENT, KMAX, Job, speculative_config
from scenarios import prompts

from adaptive_spec.trace import read_trace

pytestmark = pytest.mark.http

SUPPORT = Path(__file__).parent / "support"
START_SECONDS = 300
TEXTS = prompts(16, 41)
MAX_TOKENS = 48


class Server(NamedTuple):
    url: str
    status: Path
    trace: Path
    log: Path
    expected: list[tuple[int, ...]]
    """Tokens for TEXTS without speculation, from an engine in this process."""

    def complete(self, prompt: str, **options: Any) -> dict[str, Any]:
        body = {
            "model": "bench",
            "prompt": prompt,
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        request = urllib.request.Request(
            self.url + "/v1/completions",
            json.dumps(body | options).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            answer: dict[str, Any] = json.load(reply)
            return answer

    def counters(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.status.read_text())
        return found


@pytest.fixture(scope="module")
def server(
    models: dict[str, Path], shelf: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    jobs = [
        Job(str(index), text, 0, {"max_tokens": MAX_TOKENS}) for index, text in enumerate(TEXTS)
    ]
    answers = shelf.get().run(jobs)
    expected = [answers[job.name].tokens[0] for job in jobs]
    shelf.clear()
    folder = tmp_path_factory.mktemp("server")
    config = {
        "policy": "switchable_policies:RandomPolicy",
        "status_file": str(folder / "status.json"),
        "trace": {"directory": str(folder / "trace")},
        "memory_guard": False,
    }
    log = folder / "server.log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).parent / "vllm"),
        *("serve", str(models["target"]), "--host", "127.0.0.1", "--port", str(port)),
        *("--served-model-name", "bench", "--dtype", "float32", "--max-model-len", "400"),
        *("--max-num-seqs", "12", "--max-num-batched-tokens", "96", "--enforce-eager"),
        *("--num-gpu-blocks-override", "16", "--block-size", "32", "--seed", "0"),
        *("--per-request-spec-decode-metrics", "summary"),
        *("--speculative-config", json.dumps(speculative_config(models, "draft_model"))),
        *("--additional-config", json.dumps({"adaptive_spec": config})),
    ]
    environment = os.environ | ENVIRONMENT
    environment |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_LOGGING_LEVEL": "INFO",
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    server = Server(
        f"http://127.0.0.1:{port}", folder / "status.json", folder / "trace", log, expected
    )
    try:
        wait_until_ready(server, process)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def wait_until_ready(server: Server, process: subprocess.Popen[bytes]) -> None:
    for _ in range(2 * START_SECONDS):
        if process.poll() is not None:
            pytest.fail("vllm serve ended:\n" + server.log.read_text()[-3000:])
        try:
            urllib.request.urlopen(server.url + "/health", timeout=2)
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
        else:
            return
    pytest.fail("vllm serve was not ready:\n" + server.log.read_text()[-3000:])


def test_greedy_tokens_are_those_without_speculation(server: Server) -> None:
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(server.complete, TEXTS))
    for text, answer, expected in zip(TEXTS, answers, server.expected, strict=True):
        assert tuple(answer["choices"][0]["token_ids"]) == expected, text
    assert any(speculation(answer)["num_draft_tokens"] for answer in answers)


def speculation(answer: dict[str, Any]) -> dict[str, Any]:
    """The engine's own account of a request's speculation."""
    found: dict[str, Any] = answer["metrics"]["speculative_decoding"]
    return found


def test_hints_arrive(server: Server) -> None:
    plain, off = (
        server.complete(TEXTS[0], vllm_xargs=hints)
        for hints in ({"adaptive_spec_task": "a"}, {"adaptive_spec_off": 1})
    )
    assert off["choices"][0]["token_ids"] == plain["choices"][0]["token_ids"]
    metrics = off.get("metrics") or {}
    assert not (metrics.get("speculative_decoding") or {}).get("num_draft_tokens")
    assert speculation(plain)["num_draft_tokens"] > 0


def test_bad_hints_are_counted_and_answered(server: Server) -> None:
    answer = server.complete(TEXTS[1], vllm_xargs={"adaptive_spec_k_cap": "many"})
    assert tuple(answer["choices"][0]["token_ids"]) == server.expected[1]
    ignored = wait_for(server, lambda status: status["ignored_hints"])
    assert ignored["adaptive_spec_k_cap"] >= 1


def wait_for(server: Server, read: Any) -> Any:
    """A value of the status file that isn't empty; the file follows within about a second."""
    for _ in range(40):
        if server.status.exists() and (found := read(server.counters())):
            return found
        server.complete(TEXTS[2], max_tokens=4)
        time.sleep(0.25)
    pytest.fail("the status file did not follow")


def test_nested_hints_are_refused_by_vllm(server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.complete(TEXTS[0], vllm_xargs={"adaptive_spec_k_cap": {"k": 1}})
    assert caught.value.code == 400


def test_status_file_counts(server: Server) -> None:
    verified = wait_for(server, lambda status: status["verified_tokens"])
    status = server.counters()
    assert verified > 0
    assert status["policy"] == "random"
    assert status["mode"] == "on"
    assert status["fail_opens"] == {}
    assert set(map(int, status["requests_by_k"])) <= set(range(KMAX + 1))
    assert status["steps_by_mode"]["on"] == status["steps"]


def test_trace_is_readable(server: Server) -> None:
    wait_for(server, lambda _: any(read_trace(server.trace)))
    records = list(read_trace(server.trace))
    for record in records:
        assert len(record["ids"]) == len(record["k"]) == len(record["accepted"])
        assert all(0 <= a <= k for a, k in zip(record["accepted"], record["k"], strict=True))
    assert any(len(set(record["k"])) > 1 for record in records), "K never differed in a batch"


def test_one_start_line(server: Server) -> None:
    lines = [line for line in server.log.read_text().splitlines() if "adaptive_spec: mode=" in line]
    assert len(lines) == 1
    assert "EngineCore" in lines[0]
