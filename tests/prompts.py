"""Prompts of the bench models."""

import json
import random
from pathlib import Path

PROMPTS = Path(__file__).resolve().parents[1] / "benchmarks" / "bench_pair" / "prompts.json"


def prompts(count: int, seed: int) -> list[str]:
    """Prompts of all kinds, mixed."""
    by_kind: dict[str, list[str]] = json.loads(PROMPTS.read_text(encoding="utf-8"))
    chosen = random.Random(seed)
    kinds = sorted(by_kind)
    return [chosen.choice(by_kind[kinds[index % len(kinds)]]) for index in range(count)]
