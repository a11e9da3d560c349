"""An EAGLE (version 1) head in plain torch, exactly as vLLM runs it.

At position i the head reads the embedding of token i+1 and the target's final normalised hidden
state (the feature) of position i, and predicts the feature of position i+1.  The target's output
embedding turns that into the distribution of token i+2.  The one layer has no input norm and there
is no final norm; parameter names are those vLLM's `llama_eagle` reads.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)


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

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        hidden, self.size = config.hidden_size, config.head_dim
        self.groups = config.num_attention_heads // config.num_key_value_heads
        self.q_proj = nn.Linear(hidden, config.num_attention_heads * self.size, bias=False)
        self.k_proj = nn.Linear(hidden, config.num_key_value_heads * self.size, bias=False)
        self.v_proj = nn.Linear(hidden, config.num_key_value_heads * self.size, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * self.size, hidden, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        passes: list[tuple[torch.Tensor, torch.Tensor]],
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


class EagleLayer(nn.Module):
    """A Llama layer without its input norm."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.self_attn = ChainAttention(config)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = LlamaMLP(config)

    def forward(
        self,
        x: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        passes: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        x = x + self.self_attn(x, rotary, passes)
        output: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output


class EagleHead(nn.Module):
    """`fc` and one layer; the embeddings are the target's and aren't stored."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([EagleLayer(config)])
        self._rotary = LlamaRotaryEmbedding(config)
        with torch.no_grad():  # starts as "the next feature is like this one"
            self.fc.weight.mul_(0.5)
            self.fc.weight[:, hidden:] += 0.5 * torch.eye(hidden)

    def forward(
        self, embeddings: torch.Tensor, features: torch.Tensor, passes: int
    ) -> list[torch.Tensor]:
        """Features predicted by each of `passes` chained passes over [batch, length, hidden].

        Entry i of pass n is predicted from the true features up to position i-n.
        """
        positions = torch.arange(embeddings.size(1))[None]
        rotary = self._rotary(embeddings, positions)
        seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        predictions: list[torch.Tensor] = []
        for _ in range(passes):
            joined = self.fc(torch.cat([embeddings, features], dim=-1))
            predicted = self.layers[0](joined, rotary, seen)
            predictions.append(predicted)
            features = shift_right(predicted, 1)
        return predictions
