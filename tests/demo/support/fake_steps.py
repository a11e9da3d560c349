"""Makes cells and steps."""

from typing import Any

from demo.act_two import Cell


def cell(arm: str, seconds: float, repeat: int = 0, concurrency: int = 4, **changes: Any) -> Cell:
    """A cell of 100 tokens."""
    values: dict[str, Any] = {"tokens": 100, "requests": 5, "drafted": 0, "accepted": 0}
    return Cell(
        arm=arm, concurrency=concurrency, repeat=repeat, seconds=seconds, **(values | changes)
    )


def step(now: float, k: list[int], accepted: list[int], **changes: Any) -> dict[str, Any]:
    """A step record with as many requests as `k` has entries, one kind after the other."""
    kinds = ("chat", "edit")
    record: dict[str, Any] = {
        "schema": 1,
        "step": int(10 * now),
        "now": now,
        "mode": "on",
        "reason": "planned",
        "depth": max(k, default=0),
        "seconds": 0.1,
        "batch_size": len(k),
        "prefill_tokens": 0,
        "ids": [f"chatcmpl-{kinds[place % 2]}-{place}-abcdef12" for place in range(len(k))],
        "k": k,
        "accepted": accepted,
        "emitted": [hits + 1 for hits in accepted],
        "predicted_seconds": 0.11,
        "predicted_tokens": 2.0,
    }
    return record | changes
