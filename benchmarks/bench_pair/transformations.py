"""Models derived from the trained ones: a wider, deeper target, one with MTP, a poor draft.

All work on plain dictionaries of tensors, named as in a Hugging Face Llama checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
Config = dict[str, Any]

INITIAL_DEVIATION = 0.02
EXPANSION_SEED = 0
NOISE_SEED = 1
NOISE_SHARE = 0.5


@dataclass(frozen=True)
class Shape:
    """The dimensions that `expand` enlarges."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    intermediate: int


BIG = Shape(hidden=1024, layers=12, heads=16, key_value_heads=8, intermediate=4096)
"""190.9 M parameters."""


def derive(name: str, sources: list[Tensors], config: Config) -> tuple[Tensors, Config]:
    """Model `name` from the committed ones that `build.SOURCES` names; `config` is the first's."""
    first = sources[0]
    if name == "draft_poor":
        return add_noise(first, NOISE_SHARE, NOISE_SEED), config
    if name == "target_big":
        return expand(first, config, BIG, EXPANSION_SEED)
    return with_mtp_module(first, config, sources[1])


def spread(count: int, places: int) -> list[int]:
    """`count` places out of `places`, evenly, the first and the last among them."""
    if count == 1:
        return [0]
    return [round(index * (places - 1) / (count - 1)) for index in range(count)]


def expand(tensors: Tensors, config: Config, shape: Shape, seed: int) -> tuple[Tensors, Config]:
    """A bigger model that computes the same logits.

    - The residual stream is padded with zeros and stays zero there, because whatever writes to it
      has zero rows.
    - An RMS norm now averages over more entries, so its weights shrink by sqrt(old/new width) and
      epsilon by old/new.  That is exact in any floating format if the ratio is a power of four.
    - New heads and units are random, as an honest load has to be, but nothing reads them.
    - New layers are random but write nothing.
    """
    width = config["hidden_size"]
    ratio = width / shape.hidden
    group = config["num_attention_heads"] // config["num_key_value_heads"]
    if shape.heads != group * shape.key_value_heads:
        raise ValueError("expanding must keep the number of query heads per key-value head")
    if math.log(ratio, 4) % 1:
        raise ValueError("expanding must multiply the width by a power of four")
    new_config = widened(config, shape) | {"num_hidden_layers": shape.layers}
    generator = torch.Generator().manual_seed(seed)

    def norm(name: str | None) -> torch.Tensor:
        return wider_norm(None if name is None else tensors[name], width, shape)

    def reader(name: str | None, rows: int) -> torch.Tensor:
        """A matrix that reads the residual: random, but what was there reads what it read."""
        weight = torch.randn(rows, shape.hidden, generator=generator) * INITIAL_DEVIATION
        if name is not None:
            old = tensors[name]
            weight[: old.size(0)] = 0.0
            weight[: old.size(0), :width] = old.float()
        return weight

    def writer(name: str | None, columns: int) -> torch.Tensor:
        """A matrix that writes to the residual: zero, except what was there."""
        weight = torch.zeros(shape.hidden, columns)
        if name is not None:
            old = tensors[name]
            weight[:width, : old.size(1)] = old.float()
        return weight

    embeddings = tensors["model.embed_tokens.weight"]
    padded = torch.zeros(embeddings.size(0), shape.hidden)
    padded[:, :width] = embeddings.float()
    expanded = {"model.embed_tokens.weight": padded, "model.norm.weight": norm("model.norm.weight")}
    head_size = config["head_dim"]
    query_rows, key_rows = shape.heads * head_size, shape.key_value_heads * head_size
    places = spread(config["num_hidden_layers"], shape.layers)
    for layer in range(shape.layers):
        source = f"model.layers.{places.index(layer)}." if layer in places else None

        def old(suffix: str, source: str | None = source) -> str | None:
            return None if source is None else source + suffix

        made = {
            name: norm(old(name))
            for name in ("input_layernorm.weight", "post_attention_layernorm.weight")
        }
        for name, rows in (
            ("self_attn.q_proj.weight", query_rows),
            ("self_attn.k_proj.weight", key_rows),
            ("self_attn.v_proj.weight", key_rows),
            ("mlp.gate_proj.weight", shape.intermediate),
            ("mlp.up_proj.weight", shape.intermediate),
        ):
            made[name] = reader(old(name), rows)
        made["self_attn.o_proj.weight"] = writer(old("self_attn.o_proj.weight"), query_rows)
        made["mlp.down_proj.weight"] = writer(old("mlp.down_proj.weight"), shape.intermediate)
        expanded |= {f"model.layers.{layer}.{name}": tensor for name, tensor in made.items()}
    dtype = embeddings.dtype
    return {name: tensor.to(dtype) for name, tensor in expanded.items()}, new_config


def widened(config: Config, shape: Shape) -> Config:
    """The configuration of a model whose width changes and whose layers stay as many."""
    return config | {
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_value_heads,
        "intermediate_size": shape.intermediate,
        "rms_norm_eps": config["rms_norm_eps"] * config["hidden_size"] / shape.hidden,
    }


def wider_norm(old: torch.Tensor | None, width: int, shape: Shape) -> torch.Tensor:
    """Weights of an RMS norm over the padded stream; of ones if there is no old one."""
    weight = torch.ones(shape.hidden)
    if old is not None:
        weight[:width] = old.float() * math.sqrt(width / shape.hidden)
    return weight


def with_mtp_module(target: Tensors, config: Config, module: Tensors) -> tuple[Tensors, Config]:
    """A Llama target and its MTP module as one checkpoint of MiMo, a Qwen2 with such modules.

    The configuration stays a Llama's, which has all that MiMo's code reads: with that of a Qwen2,
    transformers would use Qwen2's tokenizer, which splits text differently.
    """
    made = dict(target)
    for name in target:
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            made[name.removesuffix("weight") + "bias"] = torch.zeros_like(target[name][:, 0])
    for name, tensor in module.items():
        # The block's tensors lie beside the module's own.
        made[f"model.mtp_layers.0.{name.removeprefix('block.')}"] = tensor
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            bias = name.removeprefix("block.").removesuffix("weight") + "bias"
            made[f"model.mtp_layers.0.{bias}"] = torch.zeros_like(tensor[:, 0])
    made["lm_head.weight"] = target["model.embed_tokens.weight"].clone()
    return made, config | {
        "architectures": ["MiMoForCausalLM"],
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
    }


def add_noise(tensors: Tensors, share: float, seed: int) -> Tensors:
    """Add to every matrix normal noise of `share` of its own standard deviation."""
    generator = torch.Generator().manual_seed(seed)
    noisy = {}
    for name in sorted(tensors):
        weight = tensors[name].float()
        if weight.ndim == 2:
            noise = torch.randn(weight.shape, generator=generator)
            weight = weight + noise * weight.std() * share
        noisy[name] = weight.to(tensors[name].dtype)
    return noisy
