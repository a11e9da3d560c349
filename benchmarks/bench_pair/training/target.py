"""Train the target on the corpus.

Usage: `python -m benchmarks.bench_pair.training.target WORK_DIR --seconds 500`
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch.nn import functional

from .batches import Corpus
from .models import SEED, held_out_losses, new_target, prepare_torch, save_llama
from .optimizer import Optimizer, WallClock

MATRIX_RATE = 0.02
OTHER_RATE = 4e-3
TOKENS_PER_STEP = 4096
WINDOWS = (256, 256, 256, 512)
"""Window length of step n modulo 4: mostly short, sometimes long, to learn positions up to 512."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--seconds", type=float, default=500.0)
    arguments = parser.parse_args()

    prepare_torch()
    corpus = Corpus(arguments.work_dir, "train")
    generator = torch.Generator().manual_seed(SEED)
    model = new_target()
    optimizer = Optimizer(model, MATRIX_RATE, OTHER_RATE)
    clock = WallClock(arguments.seconds)
    step = 0
    while clock.progress < 1.0:
        length = WINDOWS[step % len(WINDOWS)]
        tokens = corpus.windows(TOKENS_PER_STEP // length, length + 1, generator)
        logits = model(tokens[:, :-1]).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step(clock.rate_factor(step))
        step += 1
        if step % 25 == 0:
            rate = step * TOKENS_PER_STEP / clock.elapsed
            print(f"step {step}, {clock.elapsed:.0f} s, {rate:.0f} tok/s, {loss:.3f}", flush=True)
    save_llama("target", model)
    held_out = Corpus(arguments.work_dir, "held_out")
    print(f"{step} steps, {clock.elapsed:.0f} s")
    print(f"loss {json.dumps(held_out_losses(model.eval(), held_out))}")


if __name__ == "__main__":
    main()
