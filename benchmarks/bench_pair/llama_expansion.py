"""Expansion of a small Llama model to a greater shape, without a change of its logits.

Four steps keep the function of the small model; `transformations.expand` explains the first:

- The residual stream is padded with zeros, and RMS norms are rescaled for the greater width.
- A head of 64 dimensions becomes one of 128: rotary frequency i of the old head is frequency 2 i of
  the new one, so dimensions move there, and queries grow by sqrt(2) for the wider softmax scale.
- Query heads keep their key-value head although a group has more of them.
- The vocabulary is padded. One dimension of the padded residual stream holds a constant, which the
  final norm amplifies and the rows of padded tokens weigh negatively: they are never likely.

Padded heads, units and layers have random weights, as an honest load must, and nothing reads what
they compute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from .transformations import INITIAL_DEVIATION, Config, Tensors

POSITIONS = 8192
"""Longest context that an engine may be configured with; text is what the model knows to 2,048."""
CONSTANT = 2.0**-5
"""Value of the constant dimension in every embedding: 0.05 % of an embedding's square norm."""
FINAL_GAIN = 1024.0
"""Weight of the constant dimension in the final norm."""
EAGLE_CONSTANT = 0.5
"""Value of the constant dimension in the EAGLE head's output, which has no norm."""
PADDED_TOKEN_WEIGHT = -64.0
"""Weight of the constant dimension in the logit of a padded token."""


@dataclass(frozen=True)
class LlamaShape:
    """Dimensions of a Llama model."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head_size: int
    intermediate: int
    vocabulary: int


class Expansion:
    """Tensors of one model in a greater shape, made on a device.

    Args:
        tensors: the small model, names as in a Hugging Face checkpoint.
        config: its configuration.
        shape: of the great model. Raises ValueError if the small one does not fit into it.
        device: where the tensors are made.
        seed: of the padding.
    """

    def __init__(
        self, tensors: Tensors, config: Config, shape: LlamaShape, device: str, seed: int = 0
    ) -> None:
        self._old = {name: tensor.to(device).float() for name, tensor in tensors.items()}
        self._config, self._shape, self._device = config, shape, device
        self._width: int = config["hidden_size"]
        self._random = torch.Generator(device).manual_seed(seed)
        group = config["num_attention_heads"] // config["num_key_value_heads"]
        new_group = shape.heads // shape.key_value_heads
        if (
            self._width >= shape.hidden
            or group > new_group
            or config["num_key_value_heads"] > shape.key_value_heads
            or shape.head_size % config["head_dim"]
        ):
            raise ValueError(f"a model of width {self._width} does not fit into {shape}")
        self._query_heads = [
            head // group * new_group + head % group
            for head in range(config["num_attention_heads"])
        ]
        self._norm_scale = math.sqrt(self._width / shape.hidden)

    @property
    def config(self) -> Config:
        """Configuration of the great model."""
        shape = self._shape
        return self._config | {
            "hidden_size": shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.key_value_heads,
            "head_dim": shape.head_size,
            "intermediate_size": shape.intermediate,
            "vocab_size": shape.vocabulary,
            "max_position_embeddings": POSITIONS,
            "rms_norm_eps": self._config["rms_norm_eps"] * self._width / shape.hidden,
            "tie_word_embeddings": False,
        }

    def vocabulary(self) -> Tensors:
        """Embedding, final norm and LM head."""
        old = self._old["model.embed_tokens.weight"]
        rows = old.size(0)
        embedding = self._zeros(self._shape.vocabulary, self._shape.hidden)
        embedding[:rows, : self._width] = old
        embedding[:, self._width] = CONSTANT
        head = self._noise(self._shape.vocabulary, self._shape.hidden)
        head[:, : self._width + 1] = 0.0
        head[:rows, : self._width] = old
        head[rows:, self._width] = PADDED_TOKEN_WEIGHT
        norm = self._norm("model.norm.weight")
        norm[self._width] = FINAL_GAIN
        return {
            "model.embed_tokens.weight": embedding,
            "model.norm.weight": norm,
            "lm_head.weight": head,
        }

    def layer(self, source: str | None, *, input_norm: bool = True) -> Tensors:
        """One layer, without prefix: that of the small model named `source`, or one of padding."""
        shape = self._shape
        queries, keys = shape.heads * shape.head_size, shape.key_value_heads * shape.head_size
        key_heads = list(range(self._config["num_key_value_heads"]))
        old_size = self._config["head_dim"]
        rotary = self._rotary_places()
        query_rows = self._rows(self._query_heads, rotary)
        key_rows = self._rows(key_heads, rotary)
        value_rows = self._rows(key_heads, torch.arange(old_size))
        output_columns = self._rows(self._query_heads, torch.arange(old_size))
        units = torch.arange(self._config["intermediate_size"])
        scale = math.sqrt(shape.head_size / old_size)

        def name(suffix: str) -> str | None:
            return None if source is None else source + suffix

        def head_reader(suffix: str, total: int, heads: list[int], rows: Any, by: float) -> Any:
            weight = self._noise(total, shape.hidden)
            if source is not None:
                # The rest of a head in use must add nothing to its scores.
                for head in heads:
                    weight[head * shape.head_size : (head + 1) * shape.head_size] = 0.0
                weight[rows, : self._width] = (self._old[source + suffix] * by).bfloat16()
            return weight

        made = {
            "self_attn.q_proj.weight": head_reader(
                "self_attn.q_proj.weight", queries, self._query_heads, query_rows, scale
            ),
            "self_attn.k_proj.weight": head_reader(
                "self_attn.k_proj.weight", keys, key_heads, key_rows, 1.0
            ),
            "self_attn.v_proj.weight": head_reader(
                "self_attn.v_proj.weight", keys, key_heads, value_rows, 1.0
            ),
            "post_attention_layernorm.weight": self._norm(name("post_attention_layernorm.weight")),
        }
        if input_norm:
            made["input_layernorm.weight"] = self._norm(name("input_layernorm.weight"))
        for suffix in ("mlp.gate_proj.weight", "mlp.up_proj.weight"):
            weight = self._noise(shape.intermediate, shape.hidden)
            if source is not None:
                weight[: len(units)] = 0.0
                weight[: len(units), : self._width] = self._old[source + suffix]
            made[suffix] = weight
        for suffix, size, columns in (
            ("self_attn.o_proj.weight", queries, output_columns),
            ("mlp.down_proj.weight", shape.intermediate, units),
        ):
            weight = self._zeros(shape.hidden, size)
            if source is not None:
                block = self._zeros(self._width, size)
                block[:, columns] = self._old[source + suffix].bfloat16()
                weight[: self._width] = block
            made[suffix] = weight
        return made

    def eagle_projection(self) -> torch.Tensor:
        """`fc` of an EAGLE head [hidden, 2 hidden]: embedding, then the target's features."""
        old, width, hidden = self._old["fc.weight"], self._width, self._shape.hidden
        weight = self._zeros(hidden, 2 * hidden)
        weight[:width, :width] = old[:, :width]
        weight[:width, hidden : hidden + width] = old[:, width:]
        weight[width, width] = EAGLE_CONSTANT / CONSTANT
        return weight

    def _rotary_places(self) -> torch.Tensor:
        """Where the dimensions of an old head go so that each keeps its rotary frequency."""
        old, new = self._config["head_dim"], self._shape.head_size
        frequency = torch.arange(old // 2) * (new // old)
        return torch.cat([frequency, frequency + new // 2])

    def _rows(self, heads: list[int], places: torch.Tensor) -> torch.Tensor:
        return torch.cat([head * self._shape.head_size + places for head in heads])

    def _norm(self, name: str | None) -> torch.Tensor:
        weight = torch.ones(self._shape.hidden, device=self._device)
        if name is not None:
            weight[: self._width] = self._old[name] * self._norm_scale
        return weight

    def _noise(self, *size: int) -> torch.Tensor:
        weight = torch.randn(
            *size, generator=self._random, device=self._device, dtype=torch.bfloat16
        )
        return weight.mul_(INITIAL_DEVIATION)

    def _zeros(self, *size: int) -> torch.Tensor:
        return torch.zeros(*size, device=self._device, dtype=torch.bfloat16)
