"""The three architectures, evaluation, and saving."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.bench_pair.names import END_OF_TEXT_ID, KINDS, VOCABULARY_SIZE, WEIGHTS

from .batches import Corpus

SEED = 1
THREADS = 2
HEAD_SIZE = 64
LONGEST_CONTEXT = 2048
CONFIG_KEYS = (
    "architectures",
    "attention_bias",
    "bos_token_id",
    "eos_token_id",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "mlp_bias",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "pad_token_id",
    "rms_norm_eps",
    "rope_parameters",
    "tie_word_embeddings",
    "vocab_size",
)
"""What is kept of transformers' configuration: all that describes the model."""


def llama_config(
    *, hidden: int, layers: int, heads: int, key_value_heads: int, intermediate: int
) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=HEAD_SIZE,
        max_position_embeddings=LONGEST_CONTEXT,
        rms_norm_eps=1e-5,
        bos_token_id=END_OF_TEXT_ID,
        eos_token_id=END_OF_TEXT_ID,
        pad_token_id=END_OF_TEXT_ID,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        dtype="float32",
    )


def new_target() -> LlamaForCausalLM:
    """4 layers of width 256, 3.67 M parameters."""
    return _new(llama_config(hidden=256, layers=4, heads=4, key_value_heads=2, intermediate=768))


def new_draft() -> LlamaForCausalLM:
    """1 layer of width 192, 0.79 M parameters."""
    return _new(llama_config(hidden=192, layers=1, heads=3, key_value_heads=1, intermediate=512))


def _new(config: LlamaConfig) -> LlamaForCausalLM:
    torch.manual_seed(SEED)
    return LlamaForCausalLM(config)


def prepare_torch() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)


def log_probabilities(model: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(tokens).logits
    return logits.log_softmax(-1)


@torch.no_grad()
def held_out_losses(model: LlamaForCausalLM, corpus: Corpus) -> dict[str, float]:
    """Mean cross-entropy per token (nats) of each kind."""
    losses = {}
    for kind in KINDS:
        tokens = corpus.windows(16, 257, torch.Generator().manual_seed(5), kind)
        logits = model(tokens[:, :-1]).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        losses[kind] = round(loss.item(), 3)
    return losses


def save_weights(
    name: str,
    tensors: dict[str, torch.Tensor],
    config: LlamaConfig,
    own: Mapping[str, Any] | None = None,
) -> None:
    """Write `weights/NAME/{model.safetensors,config.json}`, the tensors as bf16.

    `own` is what transformers' configuration does not describe.
    """
    folder = WEIGHTS / name
    folder.mkdir(parents=True, exist_ok=True)
    halved = {key: value.detach().to(torch.bfloat16).contiguous() for key, value in tensors.items()}
    save_file(halved, folder / "model.safetensors", metadata={"format": "pt"})
    described = config.to_dict()
    saved = {key: described[key] for key in CONFIG_KEYS} | {"dtype": "bfloat16", **(own or {})}
    (folder / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")


def save_llama(name: str, model: LlamaForCausalLM) -> None:
    tensors = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}
    config = model.config.to_dict() | {"architectures": ["LlamaForCausalLM"]}
    save_weights(name, tensors, LlamaConfig(**config))


def load_target(folder: Path = WEIGHTS / "target") -> LlamaForCausalLM:
    """The committed target, in float32, for distillation."""
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval().requires_grad_(False)
