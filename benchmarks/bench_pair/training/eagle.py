"""Distil an EAGLE head from the target, through as many chained passes as it is trained for.

Usage: `python -m benchmarks.bench_pair.training.eagle WORK_DIR --seconds 190`
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.bench_pair.names import KINDS

from .batches import Corpus
from .eagle_head import EagleHead
from .models import SEED, load_target, prepare_torch, save_weights
from .optimizer import Optimizer, WallClock
from .samples import SAMPLE_TOKENS, read_samples

MATRIX_RATE = 0.015
OTHER_RATE = 3e-3
CORPUS_ROWS = 5
SAMPLE_ROWS = 5
PASS_WEIGHTS = (1.0, 0.8, 0.6)
FEATURE_WEIGHT = 0.5


def eagle_config(target: LlamaConfig) -> LlamaConfig:
    """The target's shape with one layer."""
    return LlamaConfig(
        **target.to_dict() | {"num_hidden_layers": 1, "architectures": ["LlamaForCausalLM"]}
    )


def run_passes(
    head: EagleHead, target: LlamaForCausalLM, tokens: torch.Tensor
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Predicted features of every pass, and the true ones they should equal."""
    with torch.no_grad():
        features = target.model(tokens).last_hidden_state
        embeddings = target.model.embed_tokens(tokens)
    return head(embeddings[:, 1:], features[:, :-1], len(PASS_WEIGHTS)), features[:, 1:]


def distillation_loss(
    head: EagleHead, target: LlamaForCausalLM, tokens: torch.Tensor
) -> torch.Tensor:
    """Token loss (KL to the target) plus feature loss (smooth L1), summed over the passes."""
    predictions, features = run_passes(head, target, tokens)
    with torch.no_grad():
        wanted = target.lm_head(features).log_softmax(-1)
    total = torch.zeros(())
    for depth, (weight, predicted) in enumerate(zip(PASS_WEIGHTS, predictions, strict=True)):
        given = target.lm_head(predicted[:, depth:]).log_softmax(-1).flatten(0, 1)
        token_loss = functional.kl_div(
            given, wanted[:, depth:].flatten(0, 1), log_target=True, reduction="batchmean"
        )
        feature_loss = functional.smooth_l1_loss(predicted[:, depth:], features[:, depth:])
        total = total + weight * (token_loss + FEATURE_WEIGHT * feature_loss)
    return total


@torch.no_grad()
def agreements(head: EagleHead, target: LlamaForCausalLM, corpus: Corpus) -> dict[str, list[float]]:
    """How often each pass has the target's most likely token."""
    found = {}
    for kind in KINDS:
        tokens = corpus.windows(16, 256, torch.Generator().manual_seed(5), kind)
        predictions, features = run_passes(head, target, tokens)
        best = target.lm_head(features).argmax(-1)
        found[kind] = [
            round((target.lm_head(p).argmax(-1) == best)[:, n:].float().mean().item(), 3)
            for n, p in enumerate(predictions)
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--seconds", type=float, default=190.0)
    arguments = parser.parse_args()

    prepare_torch()
    corpus = Corpus(arguments.work_dir, "train")
    samples = read_samples(arguments.work_dir)
    generator = torch.Generator().manual_seed(SEED)
    target = load_target()
    config = eagle_config(target.config)
    head = EagleHead(config)
    optimizer = Optimizer(head, MATRIX_RATE, OTHER_RATE)
    clock = WallClock(arguments.seconds)
    step = 0
    while clock.progress < 1.0:
        rows = torch.randint(len(samples), (SAMPLE_ROWS,), generator=generator)
        windows = corpus.windows(CORPUS_ROWS, SAMPLE_TOKENS, generator)
        loss = distillation_loss(head, target, torch.cat([windows, samples[rows]]))
        loss.backward()
        optimizer.step(clock.rate_factor(step))
        step += 1
        if step % 25 == 0:
            print(f"step {step}, {clock.elapsed:.0f} s, {loss:.3f}", flush=True)
    save_weights("eagle", dict(head.state_dict()), config)
    held_out = Corpus(arguments.work_dir, "held_out")
    print(f"{step} steps, {clock.elapsed:.0f} s")
    print(f"agreement {json.dumps(agreements(head, target, held_out))}")


if __name__ == "__main__":
    main()
