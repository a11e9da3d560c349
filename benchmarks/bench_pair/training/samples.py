"""Continue corpus windows with the target, as extra text for distillation.

    python -m benchmarks.bench_pair.training.samples WORK_DIR --seconds 80

writes WORK_DIR/samples.bin: rows of `SAMPLE_TOKENS` little-endian uint16 token ids.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from .batches import Corpus
from .models import load_target, prepare_torch
from .optimizer import WallClock

SEED = 11
BATCH = 256
PROMPT_TOKENS = 24
SAMPLE_TOKENS = 257
TEMPERATURES = (0.0, 0.8, 0.8, 1.0)
"""Greedy text of a small model soon repeats itself, so most samples aren't greedy."""


@torch.no_grad()
def continue_windows(
    target: LlamaForCausalLM, windows: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Extend every row to `SAMPLE_TOKENS`, row r at temperature r modulo their number."""
    temperatures = torch.tensor(TEMPERATURES).repeat(len(windows) // len(TEMPERATURES))[:, None]
    tokens, new, cache = windows, windows, None
    while tokens.size(1) < SAMPLE_TOKENS:
        output = target(new, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, logits = output.past_key_values, output.logits[:, -1]
        probabilities = (logits / temperatures.clamp_min(1e-2)).softmax(-1)
        sampled = torch.multinomial(probabilities, 1, generator=generator)
        new = torch.where(temperatures == 0, logits.argmax(-1, keepdim=True), sampled)
        tokens = torch.cat([tokens, new], dim=1)
    return tokens


def read_samples(work_dir: Path) -> torch.Tensor:
    """All sampled rows as int64 [rows, SAMPLE_TOKENS]."""
    flat = np.fromfile(work_dir / "samples.bin", dtype="<u2").astype(np.int64)
    return torch.from_numpy(flat).view(-1, SAMPLE_TOKENS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--seconds", type=float, default=80.0)
    arguments = parser.parse_args()

    prepare_torch()
    corpus = Corpus(arguments.work_dir, "train")
    generator = torch.Generator().manual_seed(SEED)
    target = load_target()
    clock = WallClock(arguments.seconds)
    batches: list[torch.Tensor] = []
    # Stop before a batch that would overrun, judged by the mean so far.
    while not batches or clock.progress * (1 + 1 / len(batches)) < 1.0:
        windows = corpus.windows(BATCH, PROMPT_TOKENS, generator)
        batches.append(continue_windows(target, windows, generator))
        print(f"{len(batches) * BATCH} rows, {clock.elapsed:.0f} s", flush=True)
    torch.cat(batches).numpy().astype("<u2").tofile(arguments.work_dir / "samples.bin")


if __name__ == "__main__":
    main()
