"""Cells that nobody has measured."""

from __future__ import annotations

from benchmarks.vllm_cpu.cells import Cell, Condition

CONDITION = Condition(
    draft="good", workload="mixed", temperature=0.8, draft_sampling="probabilistic"
)


def cell(
    arm: str = "none",
    concurrency: int = 1,
    repeat: int = 0,
    *,
    tokens: int = 100,
    request_steps: int = 40,
    accepted: int = 60,
) -> Cell:
    """A cell of two seconds."""
    return Cell(
        arm=arm,
        concurrency=concurrency,
        repeat=repeat,
        began=0.0,
        ended=2.0,
        seconds=2.0,
        tokens=tokens,
        finished=1,
        steps=50,
        request_steps=request_steps,
        drafted=80,
        accepted=accepted,
        by_kind={"json": (40, 60)},
        others_cpu=0.0,
    )
