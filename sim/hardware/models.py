"""Shapes of models (``models.json``), from the configuration files their makers publish."""

from __future__ import annotations

from pathlib import Path

import msgspec

from adaptive_spec.errors import ConfigError


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a decoder-only transformer with grouped-query attention and gated MLPs.

    Attributes:
        name: short name, as in ``roofline:h100:llama-3.1-8b``.
        source: where the shape is published.
        layers: transformer layers.
        hidden: width of the residual stream.
        intermediate: width of the MLP, of one expert if there are experts.
        heads: query heads.
        kv_heads: key and value heads.
        head_size: size of a head.
        vocabulary: entries of the vocabulary.
        experts: experts per layer; 0 if the MLP is dense.
        experts_per_token: of which each token takes this many.
        tied_embedding: input and output embedding share their weights.
    """

    name: str
    source: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int = 128
    vocabulary: int
    experts: int = 0
    experts_per_token: int = 0
    tied_embedding: bool = False

    @property
    def attention_weights(self) -> int:
        """Weights of one layer's attention projections."""
        return self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)

    @property
    def mlp_weights(self) -> int:
        """Weights of one layer's MLP, or of one expert."""
        return 3 * self.hidden * self.intermediate

    @property
    def head_weights(self) -> int:
        """Weights of the vocabulary head."""
        return self.hidden * self.vocabulary

    @property
    def weights(self) -> int:
        """All weights, norms neglected."""
        mlp = self.mlp_weights * max(self.experts, 1) + self.hidden * self.experts
        embeddings = self.head_weights * (1 if self.tied_embedding else 2)
        return self.layers * (self.attention_weights + mlp) + embeddings

    def kv_bytes_per_token(self, bytes_per_value: float = 2.0) -> float:
        """Keys and values of one token, all layers."""
        return 2.0 * self.layers * self.kv_heads * self.head_size * bytes_per_value


MODELS: dict[str, ModelFacts] = {
    model.name: model
    for model in msgspec.json.decode(
        Path(__file__).with_suffix(".json").read_bytes(), type=tuple[ModelFacts, ...]
    )
}


def model_facts(name: str) -> ModelFacts:
    """A model by its short name. Raises ConfigError listing the names."""
    found = MODELS.get(name.lower())
    if found is None:
        raise ConfigError(f"unknown model {name!r}; known: {', '.join(sorted(MODELS))}")
    return found
