"""Attention DP: two replicas with requests of their own run the same K at every step.

Each has a policy that draws another K at every step; that of the one with more requests runs. Many
steps find one replica without requests, which takes part in the passes of the other.
"""

from pathlib import Path
from typing import Any

import pytest
from records import by_request, check_labels, read_settled
from serving import LADDER, PATIENT, PLAIN, Job

from tests.prompts import prompts

pytestmark = [pytest.mark.engine, pytest.mark.long]

COUNT = 200
TREE = {
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 2,
    "speculative_num_draft_tokens": 6,
}


@pytest.fixture(scope="module")
def target(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    from sglang_models import as_qwen3  # with torch, which not every environment has

    return str(as_qwen3(models["target"], tmp_path_factory.mktemp("qwen3")))


def requests(count: int, name: str = "dp") -> list[Job]:
    """Requests of many lengths: the last ones of a run leave a replica alone."""
    texts = prompts(count, 17)
    return [
        Job(f"{name}-{i}", text, {"max_new_tokens": 2 + i % 40}) for i, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def plain(shelf: Any, target: str) -> dict[str, list[int]]:
    """Greedy answers without speculation and without attention DP, by name of the request."""
    answers = shelf.get(**PLAIN | {"model_path": target}).run(requests(COUNT))
    return {name: answer.tokens for name, answer in answers.items()}


@pytest.mark.parametrize("drafts", [{}, TREE], ids=["chain", "tree"])
def test_replicas_run_one_k_and_the_text_stays(
    plain: dict[str, list[int]],
    shelf: Any,
    target: str,
    tmp_path: Path,
    drafts: dict[str, int],
) -> None:
    engine = shelf.get(
        "EAGLE3",
        adaptive={
            "policy": "recorded_policies:NoisyClockPolicy",
            "memory_guard": False,
            "fail_open": PATIENT,
        },
        variables={
            "RANK_RECORD": str(tmp_path / "rank"),
            "SGLANG_CPU_OMP_THREADS_BIND": "0|0",
        },
        without=("speculative_adaptive",),
        model_path=target,
        tp_size=2,
        dp_size=2,
        enable_dp_attention=True,
        max_total_tokens=4000,
        **drafts,
    )
    assert engine.log.count("adaptive_spec: mode=on") == 2
    answers = engine.run(requests(COUNT))
    assert {name: answer.tokens for name, answer in answers.items()} == plain
    check_labels(answers, by_request(read_settled(engine.record_file)), LADDER[-1])
    # A policy that raises leaves the step to the launch's K, on both replicas.
    assert len(engine.run(requests(6, "fails"))) == 6
    ranks = [
        [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        for path in sorted(tmp_path.glob("rank.*"))
    ]
    shared = min(map(len, ranks))  # a rank may be a line ahead
    first, second = ([k for _, k in rank[:shared]] for rank in ranks)
    assert first == second
    assert set(first) == set(LADDER)
    alone = [k for rank in ranks for size, k in rank if not size]
    assert len(alone) > 5
    assert max(alone) == LADDER[-1]
