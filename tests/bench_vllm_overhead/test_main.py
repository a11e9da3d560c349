from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("httpx", reason="of the environment `vllm`")

from benchmarks.vllm_overhead.main import parse


def test_every_way_of_drafting_meets_every_k() -> None:
    conditions, folder = parse(["--results", "there", "--models", "models"])
    assert folder == Path("there")
    assert [(each.draft_sampling, each.k) for each in conditions] == [
        ("probabilistic", 2),
        ("probabilistic", 6),
        ("greedy", 2),
        ("greedy", 6),
    ]
    assert {each.batch for each in conditions} == {16}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--k", "2,x"], "--k 2,x: numbers from 1 to 8"),
        (["--k", "0"], "--k 0"),
        (["--draft-sampling", "lazy"], "--draft-sampling lazy"),
        (["--batch", "17"], "--batch 1 to 16"),
        (["--cycles", "0"], "at least 1"),
    ],
)
def test_a_mistake_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: str
) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
    assert named in capsys.readouterr().err.splitlines()[-1]
