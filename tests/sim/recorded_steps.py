"""Step records as traces hold them, for tests that write their own."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = "steps-1-000000.jsonl"


def step_row(
    step: int,
    ids: Sequence[str],
    k: Sequence[int],
    accepted: Sequence[int],
    emitted: Sequence[int] | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """A step record of an older version, which later columns may be added to."""
    batch_tokens = len(ids) + sum(k)
    return {
        "schema": 1,
        "step": step,
        "now": 0.01 * step,
        "mode": "on",
        "reason": "test",
        "depth": max(k, default=0),
        "seconds": 0.01,
        "batch_size": len(ids),
        "batch_tokens": batch_tokens,
        "context_tokens": 100 * len(ids),
        "prefill_tokens": 0,
        "waiting": 0,
        "kv_free_tokens": 1 << 20,
        "ids": list(ids),
        "k": list(k),
        "accepted": list(accepted),
        "emitted": [a + 1 for a in accepted] if emitted is None else list(emitted),
        **columns,
    }


def write_steps(path: Path, *rows: dict[str, Any], end: str = "\n") -> Path:
    """Write rows as a segment."""
    path.write_text("\n".join(json.dumps(row) for row in rows) + end)
    return path
