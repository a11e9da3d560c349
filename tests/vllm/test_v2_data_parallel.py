"""K per request in full graphs on model runner V2 with two data-parallel ranks.

The ranks of a dense model are engines of their own, so each has graphs and K of its own. The
kernels run in Triton's interpreter, and full graphs as in test_v2_varlen.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import v2_varlen
from engines import PATIENT
from scenarios import prompts
from server import Server, serving

OFF = {"vllm_xargs": {"adaptive_spec_off": 1}}


@pytest.fixture(scope="module")
def server(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ranks")
    adaptive = {
        "policy": "switchable_policies:RandomPolicy",
        "fail_open": PATIENT,
        "status_file": str(folder / "status-{pid}.json"),
    }
    arguments = ["--data-parallel-size", "2", "--max-num-seqs", "6"]
    with pytest.MonkeyPatch.context() as patch:
        own = str(v2_varlen.plugin_folder(folder / "plugin"))
        patch.setenv("PYTHONPATH", own, prepend=os.pathsep)
        patch.setenv(v2_varlen.COUNTS, str(folder))
        with serving(
            models, folder, adaptive, *arguments, method="eagle", plugins=(v2_varlen.NAME,)
        ) as server:
            yield server


@pytest.mark.http
@pytest.mark.long
@pytest.mark.timeout(0)
def test_each_rank_has_k_per_request_in_full_graphs_and_the_same_tokens(server: Server) -> None:
    texts = prompts(8, 41)

    def ask(options: dict[str, Any]) -> list[list[int]]:
        with ThreadPoolExecutor(8) as clients:
            answers = list(
                clients.map(lambda text: server.complete(text, max_tokens=16, **options), texts)
            )
        return [answer["choices"][0]["token_ids"] for answer in answers]

    plain = ask(OFF)
    assert ask({}) == plain
    found = [json.loads(path.read_text()) for path in server.status.parent.glob("status-*")]
    assert len(found) == 2
    for status in found:
        assert status["fail_opens"] == {}
        assert status["accepted_tokens"] > 0
    lines = [line for line in server.log.read_text().splitlines() if "capability=" in line]
    assert len(lines) == 2
    for line in lines:
        assert "capability=FULL" in line, line
        assert "runner=V2" in line or " V2" in line, line
    for graphs in v2_varlen.counts_of(server.status.parent):
        assert graphs["FULL mixed"] > 5
        assert "PIECEWISE mixed" not in graphs
        assert "FULL prompts" not in graphs
