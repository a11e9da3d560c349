"""Random windows of the tokenised corpus."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks.bench_pair.names import KINDS

MIXTURE = {"code": 0.38, "prose": 0.24, "json": 0.15, "log": 0.14, "random": 0.09}
"""How often a training window is drawn from each kind."""


class Corpus:
    """One split of the corpus, by kind; every draw comes from the given generator."""

    def __init__(self, work_dir: Path, split: str) -> None:
        self._tokens = {
            kind: torch.from_numpy(
                np.fromfile(work_dir / f"{split}.{kind}.bin", dtype="<u2").astype(np.int64)
            )
            for kind in KINDS
        }
        self._weights = torch.tensor([MIXTURE[kind] for kind in KINDS])

    def windows(
        self, count: int, length: int, generator: torch.Generator, kind: str | None = None
    ) -> torch.Tensor:
        """`count` windows of `length` tokens, of one kind or of the mixture."""
        rows = []
        for _ in range(count):
            drawn = KINDS[int(torch.multinomial(self._weights, 1, generator=generator))]
            tokens = self._tokens[kind or drawn]
            start = int(torch.randint(len(tokens) - length, (1,), generator=generator))
            rows.append(tokens[start : start + length])
        return torch.stack(rows)
