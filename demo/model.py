"""SmolLM2-135M-Instruct, and the instructions that were measured with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.bench_pair.prompts import Job, endless_jobs

from .errors import DemoError

FOLDER = "smollm2"
KINDS = ("chat", "edit", "story", "summary")
SHORTEST = 16
"""Instructions of a kind, the shortest: on a CPU a prompt token costs as much as any other."""


def build_model(folder: Path) -> None:
    """Fetch and convert the model, unless it is there.

    Raises DemoError if that fails.
    """
    command = [sys.executable, "-m", "benchmarks.real_model.build", str(folder)]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise DemoError(f"the model can't be made in {folder}: {lines[-1]}")


def load_prompts() -> dict[str, list[str]]:
    """Instructions by kind, the shortest first."""
    from benchmarks.real_model.instructions import measured

    rows = [(row.kind, row.turns[0]) for row in measured()]
    texts = {kind: [text for of, text in rows if of == kind] for kind in KINDS}
    return {kind: sorted(some, key=len)[:SHORTEST] for kind, some in texts.items()}


def jobs(prompts: Mapping[str, Sequence[str]], max_tokens: int, seed: int) -> Iterator[Job]:
    """Requests of all kinds in turn, without end."""
    return endless_jobs(prompts, max_tokens, seed, characters=None)
