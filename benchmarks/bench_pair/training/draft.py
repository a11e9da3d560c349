"""Distil the draft from the target: full-vocabulary KL on corpus text and target samples.

Usage: `python -m benchmarks.bench_pair.training.draft WORK_DIR --seconds 160`
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM

from benchmarks.bench_pair.names import KINDS

from .batches import Corpus
from .models import (
    SEED,
    held_out_losses,
    load_target,
    log_probabilities,
    new_draft,
    prepare_torch,
    save_llama,
)
from .optimizer import Optimizer, WallClock
from .samples import SAMPLE_TOKENS, read_samples

MATRIX_RATE = 0.02
OTHER_RATE = 6e-3
CORPUS_ROWS = 8
SAMPLE_ROWS = 8


@torch.no_grad()
def overlaps(draft: LlamaForCausalLM, target: LlamaForCausalLM, corpus: Corpus) -> dict[str, float]:
    """Mean sum of min(p, q): acceptance of one sampled draft token at temperature 1."""
    found = {}
    for kind in KINDS:
        tokens = corpus.windows(16, 256, torch.Generator().manual_seed(5), kind)
        both = log_probabilities(draft, tokens), log_probabilities(target, tokens)
        found[kind] = round(torch.minimum(*both).exp().sum(-1).mean().item(), 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--seconds", type=float, default=160.0)
    arguments = parser.parse_args()

    prepare_torch()
    corpus = Corpus(arguments.work_dir, "train")
    samples = read_samples(arguments.work_dir)
    generator = torch.Generator().manual_seed(SEED)
    target = load_target()
    model = new_draft()
    optimizer = Optimizer(model, MATRIX_RATE, OTHER_RATE)
    clock = WallClock(arguments.seconds)
    step = 0
    while clock.progress < 1.0:
        rows = torch.randint(len(samples), (SAMPLE_ROWS,), generator=generator)
        windows = corpus.windows(CORPUS_ROWS, SAMPLE_TOKENS, generator)
        tokens = torch.cat([windows, samples[rows]])[:, :-1]
        with torch.no_grad():
            wanted = log_probabilities(target, tokens).flatten(0, 1)
        given = log_probabilities(model, tokens).flatten(0, 1)
        loss = functional.kl_div(given, wanted, log_target=True, reduction="batchmean")
        loss.backward()
        optimizer.step(clock.rate_factor(step))
        step += 1
        if step % 25 == 0:
            print(f"step {step}, {clock.elapsed:.0f} s, {loss:.3f}", flush=True)
    save_llama("draft", model)
    held_out = Corpus(arguments.work_dir, "held_out")
    print(f"{step} steps, {clock.elapsed:.0f} s")
    print(f"loss {json.dumps(held_out_losses(model.eval(), held_out))}")
    print(f"overlap {json.dumps(overlaps(model, target, held_out))}")


if __name__ == "__main__":
    main()
