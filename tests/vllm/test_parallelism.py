"""Tensor and data parallelism on CPU: who decides, and that it stays the same text.

With tensor parallelism one scheduler decides for all ranks, which hear of it in vLLM's own message.
The ranks of a dense model under data parallelism are engines of their own. Those of a mixture of
experts exchange tokens in every pass of target and drafter, and idle ones draft Kmax: for them the
depth is left alone, and each rank trims what it verifies. On model runner V2 each rank has graphs
of its own; the kernels run in Triton's interpreter, and full graphs as in test_v2_varlen.
"""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import v2_varlen
from engines import PATIENT
from family_checkpoints import build
from family_configs import VOCABULARY
from scenarios import prompts
from server import Server, serving

OFF = {"vllm_xargs": {"adaptive_spec_off": 1}}


class Parallel(NamedTuple):
    """Two ranks, and what the plugin does there."""

    argument: str
    engines: int
    """That decide."""
    level: str
    method: str
    plugin: str = ""
    """That every process of the server needs."""
    first: str = ""
    """Code that each process begins with."""


KINDS = {
    # eagle: the heads of the draft model do not divide by two.
    "tensor": Parallel("--tensor-parallel-size", 1, "FULL", "eagle"),
    "data": Parallel("--data-parallel-size", 2, "FULL", "eagle"),
    "experts": Parallel("--data-parallel-size", 2, "VERIFY", "mtp", "cpu_collectives:install"),
    "graphs": Parallel(
        "--data-parallel-size",
        2,
        "FULL",
        "eagle",
        "v2_varlen:plant",
        "import triton_interpreter; triton_interpreter.prepare()",
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(
    kind: str, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(kind)
    adaptive = {
        "policy": "switchable_policies:RandomPolicy",
        "fail_open": PATIENT,
        "status_file": str(folder / "status-{pid}.json"),
    }
    ranks = KINDS[kind]
    arguments = [ranks.argument, "2"]
    with pytest.MonkeyPatch.context() as patch:
        if kind == "experts":
            arguments += ["--tokenizer", str(models["target"])]
            models = {"target": build(folder, "glm_moe_mtp") / "target"}
        if kind == "graphs":
            arguments += ["--max-num-seqs", "6"]
            patch.setenv(v2_varlen.COUNTS, str(folder))
        own = {"method": ranks.method, "plugin": ranks.plugin, "first": ranks.first}
        with serving(models, folder, adaptive, *arguments, **own) as server:
            yield server


def questions(kind: str) -> list[Any]:
    if kind != "experts":
        return prompts(12, 41)
    draw = random.Random(41)
    return [draw.choices(range(3, VOCABULARY), k=draw.randrange(3, 60)) for _ in range(12)]


@pytest.mark.http
@pytest.mark.long
@pytest.mark.timeout(0)
def test_tokens_are_those_without_speculation_and_every_engine_moves_k(
    kind: str, server: Server
) -> None:
    texts = questions(kind)
    few = {"max_tokens": 16} if kind == "graphs" else {}
    engines, level = KINDS[kind].engines, KINDS[kind].level

    def ask(options: dict[str, Any]) -> list[list[int]]:
        with ThreadPoolExecutor(6) as clients:
            answers = list(
                clients.map(lambda text: server.complete(text, **(few | options)), texts)
            )
        return [answer["choices"][0]["token_ids"] for answer in answers]

    plain = ask(OFF)
    assert ask({}) == plain

    def moved() -> list[dict[str, Any]]:
        found = [
            json.loads(path.read_text()) for path in sorted(server.status.parent.glob("status-*"))
        ]
        ready = [status for status in found if len(status["requests_by_k"]) >= 4]
        return ready if len(ready) == engines == len(found) else []

    for status in server.wait_for(moved, f"{engines} engines that decide"):
        assert status["fail_opens"] == {}
        assert status["accepted_tokens"] > 0
    lines = [line for line in server.log.read_text().splitlines() if "capability=" in line]
    assert len(lines) == engines
    assert all(f"capability={level}" in line and "mode=on" in line for line in lines), lines
    if kind == "graphs":
        assert all("runner=V2" in line for line in lines), lines
        for graphs in v2_varlen.counts_of(server.status.parent):
            assert graphs["FULL mixed"] > 5
            assert "PIECEWISE mixed" not in graphs
            assert "FULL prompts" not in graphs


@pytest.mark.engine
def test_ranks_of_a_mixture_of_experts_only_trim(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM makes each rank of a dense model an engine that knows of no other."""
    from engines import prepare_environment, speculative_config

    prepare_environment()
    from vllm.engine.arg_utils import EngineArgs

    from adaptive_spec.adapters.vllm.capability import detect
    from adaptive_spec.step import Level

    config = EngineArgs(
        model=str(models["target"]),
        max_model_len=256,
        enforce_eager=True,
        data_parallel_size=2,
        speculative_config=speculative_config(models, "draft_model")
        | {"num_speculative_tokens_per_batch_size": [(1, 64, 2)]},
    ).create_engine_config()
    assert config.speculative_config.num_speculative_tokens_per_batch_size is None
    with monkeypatch.context() as experts:
        experts.setattr(type(config.model_config), "is_moe", True)
        trimmed = detect(config)
    assert trimmed.capability.level is Level.VERIFY
    assert not trimmed.capability.depth_follows
    assert "mixture of experts" in " ".join(trimmed.notes)
    for _ in ("before the start", "in its engine"):
        dense = detect(config)
        assert dense.capability.level is Level.FULL
        assert dense.capability.depth_follows
        config.parallel_config.reconfigure_for_independent_dp_rank()
