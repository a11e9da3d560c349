"""A load and recorded acceptance, so that a fresh install has something to replay."""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).with_name("vllm_cpu_mixed.jsonl.gz")
"""Step trace of vLLM 0.32 on a CPU; see README.md beside it."""
MOVING = Path(__file__).with_name("moving.yaml")
"""An open load with bursts of twenty times its rate."""
