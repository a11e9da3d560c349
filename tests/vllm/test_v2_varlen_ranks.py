"""K per request in full graphs under data parallelism: two ranks of a mixture of experts.

Real servers with model runner V2, whose kernels Triton interprets (support/v2_ranks.py). The ranks
agree on graph and size of every step by vLLM's own all-reduce.
"""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import triton_interpreter
import v2_ranks
from family_checkpoints import build
from family_configs import VOCABULARY
from server import serving

OFF = {"vllm_xargs": {"adaptive_spec_off": 1}}


@pytest.mark.http
@pytest.mark.long
@pytest.mark.timeout(900)
def test_tokens_of_two_ranks_are_those_without_speculation_in_padded_batches_of_mixed_k(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(41)
    texts: list[Any] = [
        draw.choices(range(3, VOCABULARY), k=draw.randrange(3, 40)) for _ in range(8)
    ]
    adaptive = {
        "policy": "switchable_policies:RandomPolicy",
        "fail_open": {"max_decision_ms": 60_000},
        "status_file": str(tmp_path / "status-{pid}.json"),
    }
    for name, value in triton_interpreter.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(v2_ranks.FOLDER, str(tmp_path))
    folder = v2_ranks.plugin_folder(tmp_path / "plugin")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    experts = {"target": build(tmp_path, "glm_moe_mtp") / "target"}
    arguments = ("--data-parallel-size", "2", "--tokenizer", str(models["target"]))
    arguments += ("--api-server-count", "1")
    with serving(
        experts, tmp_path, adaptive, *arguments, method="mtp", plugins=(v2_ranks.NAME,)
    ) as server:

        def ask(options: dict[str, Any]) -> list[list[int]]:
            with ThreadPoolExecutor(8) as clients:
                short = {"max_tokens": 16} | options
                answers = list(clients.map(lambda text: server.complete(text, **short), texts))
            return [answer["choices"][0]["token_ids"] for answer in answers]

        plain = ask(OFF)
        assert ask({}) == plain
        statuses = [json.loads(path.read_text()) for path in tmp_path.glob("status-*")]
        assert len(statuses) == 2, "each rank decides"
        assert all(status["fail_opens"] == {} for status in statuses)
        log = server.log.read_text()
    lines = [line for line in log.splitlines() if "capability=" in line]
    assert all("capability=VERIFY" in line and "runner=V2" in line for line in lines), lines
    dispatched = [json.loads(path.read_text()) for path in tmp_path.glob("dispatched-*")]
    assert len(dispatched) == 2
    for graphs in dispatched:
        assert graphs["FULL mixed"] > 3
        assert "FULL prompts" not in graphs
