"""Distil a head from the target, through as many chained passes as it is trained for.

Usage: `python -m benchmarks.bench_pair.training.head WORK_DIR {eagle,mtp,eagle3} --seconds 190`
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.bench_pair.names import KINDS, WEIGHTS

from .batches import Corpus
from .heads import AUXILIARY_LAYERS, HEADS, EagleHead, Head
from .models import SEED, load_target, prepare_torch, save_weights
from .optimizer import Optimizer, WallClock
from .samples import SAMPLE_TOKENS, read_samples

MATRIX_RATE = 0.015
OTHER_RATE = 3e-3
CONTINUED_SHARE = 0.3
"""Of the rates, for a head that starts from a trained one."""
PASS_WEIGHTS = (1.0, 0.8, 0.6)
FEATURE_WEIGHT = 0.5


def head_config(target: LlamaConfig, name: str) -> LlamaConfig:
    """The target's shape with one layer."""
    architecture = {"eagle3": "LlamaForCausalLMEagle3", "mtp": "MiMoMTPModel"}
    changed = {
        "num_hidden_layers": 1,
        "architectures": [architecture.get(name, "LlamaForCausalLM")],
    }
    return LlamaConfig(**target.to_dict() | changed)


def run_passes(
    head: Head, target: LlamaForCausalLM, tokens: torch.Tensor
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Predicted features of every pass, and the true ones that the LM head would read."""
    with torch.no_grad():
        residuals, final = residual_stream(target, tokens)
        features = head.features(residuals, final)
        embeddings = target.model.embed_tokens(tokens)
    return head(embeddings[:, 1:], features[:, :-1], len(PASS_WEIGHTS)), final[:, 1:]


def residual_stream(
    target: LlamaForCausalLM, tokens: torch.Tensor
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The residual stream after 0, 1, ... all layers, and the last one after the final norm."""
    last: list[torch.Tensor] = []
    hook = target.model.norm.register_forward_pre_hook(lambda _, given: last.append(given[0]))
    computed = target.model(tokens, output_hidden_states=True, use_cache=False)
    hook.remove()
    return [*computed.hidden_states[:-1], *last], computed.last_hidden_state


def distillation_loss(head: Head, target: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """KL to the target, and for EAGLE the features' smooth L1, summed over the passes."""
    predictions, features = run_passes(head, target, tokens)
    with torch.no_grad():
        wanted = target.lm_head(features).log_softmax(-1)
    total = torch.zeros(())
    for depth, (weight, predicted) in enumerate(zip(PASS_WEIGHTS, predictions, strict=True)):
        given = target.lm_head(predicted[:, depth:]).log_softmax(-1).flatten(0, 1)
        loss = functional.kl_div(
            given, wanted[:, depth:].flatten(0, 1), log_target=True, reduction="batchmean"
        )
        if isinstance(head, EagleHead):
            distance = functional.smooth_l1_loss(predicted[:, depth:], features[:, depth:])
            loss = loss + FEATURE_WEIGHT * distance
        total = total + weight * loss
    return total


@torch.no_grad()
def agreements(head: Head, target: LlamaForCausalLM, corpus: Corpus) -> dict[str, list[float]]:
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
    parser.add_argument("head", choices=sorted(HEADS))
    parser.add_argument("--seconds", type=float, default=190.0)
    parser.add_argument("--rows", type=int, default=3, help="of the corpus, and as many samples")
    arguments = parser.parse_args()

    prepare_torch()
    corpus = Corpus(arguments.work_dir, "train")
    samples = read_samples(arguments.work_dir)
    generator = torch.Generator().manual_seed(SEED)
    target = load_target()
    config = head_config(target.config, arguments.head)
    head = HEADS[arguments.head](config)
    slower = 1.0
    if arguments.head != "eagle":
        trained = load_file(WEIGHTS / "eagle" / "model.safetensors")
        eagle = {name: tensor.float() for name, tensor in trained.items()}
        head.start_from(eagle, target.model.norm.weight)
        slower = CONTINUED_SHARE
    optimizer = Optimizer(head, MATRIX_RATE * slower, OTHER_RATE * slower)
    clock = WallClock(arguments.seconds)
    step = 0
    while clock.progress < 1.0:
        rows = torch.randint(len(samples), (arguments.rows,), generator=generator)
        windows = corpus.windows(arguments.rows, SAMPLE_TOKENS, generator)
        loss = distillation_loss(head, target, torch.cat([windows, samples[rows]]))
        loss.backward()
        optimizer.step(clock.rate_factor(step))
        step += 1
        if step % 10 == 0:
            print(f"step {step}, {clock.elapsed:.0f} s, {loss:.3f}", flush=True)
    read = {"eagle_aux_hidden_state_layer_ids": AUXILIARY_LAYERS}
    own = read if arguments.head == "eagle3" else None
    save_weights(arguments.head, dict(head.state_dict()), config, own)
    held_out = Corpus(arguments.work_dir, "held_out")
    print(f"{step} steps, {clock.elapsed:.0f} s")
    print(f"agreement {json.dumps(agreements(head, target, held_out))}")


if __name__ == "__main__":
    main()
