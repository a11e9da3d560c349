"""Trained heads in plain torch, exactly as vLLM runs them: EAGLE (version 1), EAGLE-3 and MTP.

At position i a head reads the embedding of token i+1 and what the target computed at position i
(its feature), and predicts the feature of position i+1. The target's output embedding turns that
into the distribution of token i+2. Parameter names are those that vLLM reads: `llama_eagle`,
`llama_eagle3`, `mimo_mtp`.
"""

from __future__ import annotations

import abc
from typing import TypeAlias

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

AUXILIARY_LAYERS = (1, 3, 4)
"""Layers of the target after which an EAGLE-3 head reads: a low, a high and the last one."""

EMBEDDING_SIZE, FUSED_SIZE, FEATURE_SIZE, RESIDUAL_SIZE = 0.075, 0.6, 1.13, 20.0
"""Root mean square of the target's embeddings, EAGLE's fusion of both inputs, the target's features
and its residual stream after the last layer."""

Rotary: TypeAlias = tuple[torch.Tensor, torch.Tensor]
Passes: TypeAlias = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each pass so far."""


def shift_right(x: torch.Tensor, positions: int) -> torch.Tensor:
    """x moved `positions` later along dimension -2; what enters repeats the first entry."""
    if positions == 0:
        return x
    first = x[..., :1, :].expand(*x.shape[:-2], positions, x.shape[-1])
    return torch.cat([first, x[..., :-positions, :]], dim=-2)


class ChainAttention(nn.Module):
    """Attention of draft pass n, as in a chain of n+1 passes after each position.

    A query of pass n at position i sees pass 0 (true features) up to i-n, then pass m at i-n+m for
    m = 1..n: the predictions that a chain started at i-n would have made.
    """

    def __init__(self, config: LlamaConfig, streams: int = 1) -> None:
        """`streams`: how many vectors of the hidden size are read side by side."""
        super().__init__()
        hidden, self.size = config.hidden_size, config.head_dim
        self.groups = config.num_attention_heads // config.num_key_value_heads
        self.q_proj = nn.Linear(
            streams * hidden, config.num_attention_heads * self.size, bias=False
        )
        self.k_proj = nn.Linear(
            streams * hidden, config.num_key_value_heads * self.size, bias=False
        )
        self.v_proj = nn.Linear(
            streams * hidden, config.num_key_value_heads * self.size, bias=False
        )
        self.o_proj = nn.Linear(config.num_attention_heads * self.size, hidden, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        rotary: Rotary,
        passes: Passes,
    ) -> torch.Tensor:
        """Appends this pass's keys and values to `passes`."""
        batch, length, _ = x.shape
        query, key, value = (
            projection(x).view(batch, length, -1, self.size).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = apply_rotary_pos_emb(query, key, *rotary)
        key, value = (y.repeat_interleave(self.groups, dim=1) for y in (key, value))
        passes.append((key, value))
        depth = len(passes) - 1

        true_key, true_value = passes[0]
        visible = torch.ones(length, length, dtype=torch.bool).tril(-depth)
        visible[:depth, 0] = True
        scores = [(query @ true_key.transpose(-1, -2)).masked_fill(~visible, -torch.inf)]
        chain_values = []
        for earlier in range(1, depth + 1):
            chain_key, chain_value = passes[earlier]
            keys = shift_right(chain_key, depth - earlier)
            scores.append((query * keys).sum(-1, keepdim=True))
            chain_values.append(shift_right(chain_value, depth - earlier))
        weights = (torch.cat(scores, dim=-1) * self.size**-0.5).softmax(-1)
        mixed = weights[..., :length] @ true_value
        for index, values in enumerate(chain_values):
            mixed = mixed + weights[..., length + index, None] * values
        output: torch.Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return output


class DecoderLayer(nn.Module):
    """A Llama layer, with or without its input norm."""

    def __init__(self, config: LlamaConfig, *, input_norm: bool) -> None:
        super().__init__()
        if input_norm:
            self.input_layernorm = norm_of(config)
        self.self_attn = ChainAttention(config)
        self.post_attention_layernorm = norm_of(config)
        self.mlp = LlamaMLP(config)

    def forward(self, x: torch.Tensor, rotary: Rotary, passes: Passes) -> torch.Tensor:
        read = self.input_layernorm(x) if hasattr(self, "input_layernorm") else x
        x = x + self.self_attn(read, rotary, passes)
        output: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output


class Head(nn.Module, abc.ABC):
    """What the heads have in common: embeddings and LM head are the target's."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self._rotary = LlamaRotaryEmbedding(config)

    def forward(
        self, embeddings: torch.Tensor, features: torch.Tensor, passes: int
    ) -> list[torch.Tensor]:
        """What the LM head reads after each of `passes` chained passes: [batch, length, hidden].

        Entry i of pass n is predicted from the true features up to position i-n.
        """
        positions = torch.arange(embeddings.size(1))[None]
        rotary = self._rotary(embeddings, positions)
        seen: Passes = []
        predictions: list[torch.Tensor] = []
        features = self.enter(features)
        for _ in range(passes):
            predicted, fed_back = self.draft(embeddings, features, rotary, seen)
            predictions.append(predicted)
            features = shift_right(fed_back, 1)
        return predictions

    @staticmethod
    @abc.abstractmethod
    def features(residuals: list[torch.Tensor], final: torch.Tensor) -> torch.Tensor:
        """Return the features that the first pass reads.

        Args:
            residuals: the residual stream after 0, 1, ... layers of the target.
            final: the last of them after the target's final norm.
        """

    def start_from(self, eagle: dict[str, torch.Tensor], target_norm: torch.Tensor) -> None:
        """Begin near the function of a trained EAGLE head, which saves most of the training.

        Args:
            eagle: the EAGLE head's tensors, in float32.
            target_norm: weights of the target's final norm.
        """

    def enter(self, features: torch.Tensor) -> torch.Tensor:
        """The target's features, of the hidden size."""
        return features

    @abc.abstractmethod
    def draft(
        self, embeddings: torch.Tensor, features: torch.Tensor, rotary: Rotary, seen: Passes
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one pass; return what the LM head reads, and the feature of the next pass."""


class EagleHead(Head):
    """EAGLE: `fc` and one layer without an input norm; there is no final norm either."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.fc = fusion(config, kept=1)
        self.layers = nn.ModuleList([DecoderLayer(config, input_norm=False)])

    @staticmethod
    def features(residuals: list[torch.Tensor], final: torch.Tensor) -> torch.Tensor:
        return final

    def draft(
        self, embeddings: torch.Tensor, features: torch.Tensor, rotary: Rotary, seen: Passes
    ) -> tuple[torch.Tensor, torch.Tensor]:
        joined = self.fc(torch.cat([embeddings, features], dim=-1))
        predicted = self.layers[0](joined, rotary, seen)
        return predicted, predicted


class MtpHead(Head):
    """The multi-token-prediction module of MiMo: both inputs and the output are normalised."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.token_layernorm = norm_of(config)
        self.hidden_layernorm = norm_of(config)
        self.input_proj = fusion(config, kept=0)
        self.block = DecoderLayer(config, input_norm=True)
        self.final_layernorm = norm_of(config)

    @torch.no_grad()
    def start_from(self, eagle: dict[str, torch.Tensor], target_norm: torch.Tensor) -> None:
        of_token, of_feature = eagle["fc.weight"].chunk(2, dim=1)
        self.input_proj.weight.copy_(torch.cat([of_feature, of_token], dim=1))
        self.token_layernorm.weight.fill_(EMBEDDING_SIZE)
        self.hidden_layernorm.weight.copy_(target_norm)
        copy_layer(self.block, eagle)
        self.block.input_layernorm.weight.fill_(FUSED_SIZE)
        self.final_layernorm.weight.fill_(FEATURE_SIZE)

    @staticmethod
    def features(residuals: list[torch.Tensor], final: torch.Tensor) -> torch.Tensor:
        return residuals[-1]

    def draft(
        self, embeddings: torch.Tensor, features: torch.Tensor, rotary: Rotary, seen: Passes
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # vLLM's module reads nothing of the token at position 0.
        masked = torch.cat([torch.zeros_like(embeddings[:, :1]), embeddings[:, 1:]], dim=1)
        inputs = [self.hidden_layernorm(features), self.token_layernorm(masked)]
        joined = self.input_proj(torch.cat(inputs, dim=-1))
        predicted = self.final_layernorm(self.block(joined, rotary, seen))
        return predicted, predicted


class Eagle3Layer(nn.Module):
    """A layer whose attention reads embedding and feature side by side."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.input_layernorm = norm_of(config)
        self.hidden_norm = norm_of(config)
        self.self_attn = ChainAttention(config, streams=2)
        self.post_attention_layernorm = norm_of(config)
        self.mlp = LlamaMLP(config)

    def forward(
        self, embeddings: torch.Tensor, x: torch.Tensor, rotary: Rotary, passes: Passes
    ) -> torch.Tensor:
        read = torch.cat([self.input_layernorm(embeddings), self.hidden_norm(x)], dim=-1)
        x = x + self.self_attn(read, rotary, passes)
        output: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output


class Eagle3Head(Head):
    """EAGLE-3: reads the target after several of its layers and is trained on tokens alone."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.fc = fusion(config, kept=len(AUXILIARY_LAYERS) - 1, streams=len(AUXILIARY_LAYERS))
        self.midlayer = Eagle3Layer(config)
        self.norm = norm_of(config)

    @torch.no_grad()
    def start_from(self, eagle: dict[str, torch.Tensor], target_norm: torch.Tensor) -> None:
        of_token, of_feature = eagle["fc.weight"].chunk(2, dim=1)
        # The last of the layers read is the target's last: its feature, but for the norm.
        self.fc.weight.zero_()
        self.fc.weight[:, -of_feature.size(1) :] = of_feature * target_norm / RESIDUAL_SIZE
        copy_layer(self.midlayer, eagle)
        for name in ("q_proj", "k_proj", "v_proj"):
            read = eagle[f"layers.0.self_attn.{name}.weight"]
            side_by_side = torch.cat([read @ of_token, read], dim=1)
            getattr(self.midlayer.self_attn, name).weight.copy_(side_by_side)
        self.midlayer.input_layernorm.weight.fill_(EMBEDDING_SIZE)
        self.midlayer.hidden_norm.weight.fill_(FUSED_SIZE)
        self.norm.weight.fill_(FEATURE_SIZE)

    @staticmethod
    def features(residuals: list[torch.Tensor], final: torch.Tensor) -> torch.Tensor:
        return torch.cat([residuals[layer] for layer in AUXILIARY_LAYERS], dim=-1)

    def enter(self, features: torch.Tensor) -> torch.Tensor:
        entered: torch.Tensor = self.fc(features)
        return entered

    def draft(
        self, embeddings: torch.Tensor, features: torch.Tensor, rotary: Rotary, seen: Passes
    ) -> tuple[torch.Tensor, torch.Tensor]:
        predicted = self.midlayer(embeddings, features, rotary, seen)
        return self.norm(predicted), predicted


def copy_layer(layer: nn.Module, eagle: dict[str, torch.Tensor]) -> None:
    """Copy what has the same shape in the one layer of an EAGLE head."""
    for name, parameter in layer.named_parameters():
        trained = eagle.get(f"layers.0.{name}")
        if trained is not None and trained.shape == parameter.shape:
            parameter.copy_(trained)


def norm_of(config: LlamaConfig) -> LlamaRMSNorm:
    return LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)


def fusion(config: LlamaConfig, kept: int, streams: int = 2) -> nn.Linear:
    """A projection of several streams to one, which starts as half of the stream `kept`."""
    hidden = config.hidden_size
    projection = nn.Linear(streams * hidden, hidden, bias=False)
    with torch.no_grad():
        projection.weight.mul_(0.5)
        projection.weight[:, kept * hidden : (kept + 1) * hidden] += 0.5 * torch.eye(hidden)
    return projection


HEADS: dict[str, type[Head]] = {"eagle": EagleHead, "mtp": MtpHead, "eagle3": Eagle3Head}
