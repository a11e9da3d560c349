"""A real `vllm serve` with the plugin: requests, hints, status file, trace."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from engines import KMAX
from scenarios import prompts
from server import Server

from adaptive_spec.operation.segments import read_trace

pytestmark = pytest.mark.http

TEXTS = prompts(16, 41)


@pytest.mark.every_version
def test_greedy_tokens_are_those_without_speculation(
    server: Server, unspeculated: dict[str, tuple[int, ...]]
) -> None:
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(server.complete, TEXTS))
    for text, answer in zip(TEXTS, answers, strict=True):
        assert tuple(answer["choices"][0]["token_ids"]) == unspeculated[text], text
    assert any(speculation(answer)["num_draft_tokens"] for answer in answers)


def speculation(answer: dict[str, Any]) -> dict[str, Any]:
    """The engine's own account of a request's speculation."""
    found: dict[str, Any] = answer["metrics"]["speculative_decoding"]
    return found


@pytest.mark.every_version
def test_hints_arrive(server: Server) -> None:
    plain, off = (
        server.complete(TEXTS[0], vllm_xargs=hints)
        for hints in ({"adaptive_spec_task": "a"}, {"adaptive_spec_off": 1})
    )
    assert off["choices"][0]["token_ids"] == plain["choices"][0]["token_ids"]
    metrics = off.get("metrics") or {}
    assert not (metrics.get("speculative_decoding") or {}).get("num_draft_tokens")
    assert speculation(plain)["num_draft_tokens"] > 0


def test_bad_hints_are_counted_and_answered(
    server: Server, unspeculated: dict[str, tuple[int, ...]]
) -> None:
    answer = server.complete(TEXTS[1], vllm_xargs={"adaptive_spec_k_cap": "many"})
    assert tuple(answer["choices"][0]["token_ids"]) == unspeculated[TEXTS[1]]
    ignored = wait_for(server, lambda status: status["ignored_hints"])
    assert ignored["adaptive_spec_k_cap"] >= 1


def wait_for(server: Server, read: Any) -> Any:
    """A value of the status file that isn't empty; the file follows within about a second."""
    return server.wait_for(
        lambda: server.status.exists() and read(server.counters()), "the status file"
    )


def test_status_file_counts(server: Server) -> None:
    verified = wait_for(server, lambda status: status["verified_tokens"])
    status = server.counters()
    assert verified > 0
    assert status["policy"] == "random"
    assert status["mode"] == "on"
    assert status["fail_opens"] == {}
    assert set(map(int, status["requests_by_k"])) <= set(range(KMAX + 1))
    # Tests that had the server before may have switched it off for some steps.
    assert status["steps_by_mode"]["on"] > 0
    assert sum(status["steps_by_mode"].values()) == status["steps"]


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


def test_the_span_of_a_request_has_the_counts_of_its_speculation(
    server: Server, collector: Any
) -> None:
    if collector is None:
        pytest.skip("OpenTelemetry is not installed")
    answer = server.complete(TEXTS[2])
    span = server.wait_for(
        lambda: [
            each
            for each in collector.requests
            if each["gen_ai.request.id"].startswith(answer["id"])
        ],
        "the span",
    )[0]
    counted, verified = speculation(answer), span["adaptive_spec.verified_tokens"]
    assert verified == counted["num_draft_tokens"] > 0
    assert 0 <= span["adaptive_spec.accepted_tokens"] < span["gen_ai.usage.completion_tokens"]
    assert 0 < span["adaptive_spec.mean_k"] <= KMAX
