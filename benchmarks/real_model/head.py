"""An EAGLE-3 head for the real model, in the form that vLLM serves (`LlamaForCausalLMEagle3`).

Row p reads the token after it, x[p + 1], and the target's streams at p; it says x[p + 2]. In a
chain of drafts, pass j of row p reads x[p + 1 + j] and what pass j - 1 of the row has made of the
streams, at position p + j; it sees pass 0 of the rows up to p and its own row's passes. Source: Li
et al., EAGLE-3, arXiv:2503.01840.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .features import LAYERS

THETA = 100_000.0
EPSILON = 1e-5


@dataclass(frozen=True, eq=False)
class Target:
    """What head and teacher share of the target: embedding [V, width], and its last norm."""

    embedding: Tensor
    norm: Tensor
    config: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Target:
        """Read the model folder, in float32."""
        from safetensors import safe_open

        with safe_open(folder / "model.safetensors", framework="pt") as file:
            embedding, norm = (
                file.get_tensor(f"model.{name}.weight").float() for name in ("embed_tokens", "norm")
            )
        return cls(embedding, norm, json.loads((folder / "config.json").read_text()))

    def logits(self, stream: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Return logits [..., V or tokens] of the last stream [..., width]."""
        rows = self.embedding if tokens is None else self.embedding[tokens]
        return _normed(stream, self.norm) @ rows.T


def _normed(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), EPSILON)


class _Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return _normed(x, self.weight)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, size: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, size
        self.q_proj = nn.Linear(2 * width, heads * size, bias=False)
        self.k_proj = nn.Linear(2 * width, groups * size, bias=False)
        self.v_proj = nn.Linear(2 * width, groups * size, bias=False)
        self.o_proj = nn.Linear(heads * size, width, bias=False)

    def forward(self, x: Tensor, position: Tensor, before: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Attend to pass 0 of earlier rows, and to all passes of the row itself.

        Args:
            x: [B, T, 2 width]; of passes after the first, rows may be left out at the beginning.
            position: [T].
            before: keys and values [B, heads, T, size] of the passes before; this one's are added.
        """
        b, t, _ = x.shape
        q = _rotated(self.q_proj(x).view(b, t, self.heads, self.size).transpose(1, 2), position)
        k = _rotated(self.k_proj(x).view(b, t, self.groups, self.size).transpose(1, 2), position)
        v = self.v_proj(x).view(b, t, self.groups, self.size).transpose(1, 2)
        share = self.heads // self.groups
        before.append((k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)))
        first_k, first_v = before[0]
        rows = first_k.shape[2]
        hidden = torch.full((t, rows), -math.inf).triu(1 + rows - t)
        scores = [q @ first_k.transpose(-1, -2) / math.sqrt(self.size) + hidden]
        for own_k, _ in before[1:]:
            scores.append((q * own_k).sum(-1, keepdim=True) / math.sqrt(self.size))
        weights = torch.cat(scores, dim=-1).float().softmax(-1)
        out = weights[..., :rows].to(first_v.dtype) @ first_v
        for at, (_, own_v) in enumerate(before[1:]):
            out = out + weights[..., rows + at : rows + at + 1] * own_v
        return self.o_proj(out.transpose(1, 2).reshape(b, t, -1))


def _rotated(x: Tensor, position: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    speed = THETA ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = position[:, None].float() * speed
    cos, sin = angle.cos(), angle.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


class _Mlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made = functional.silu(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(made)


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, size: int, inner: int) -> None:
        super().__init__()
        self.input_layernorm = _Norm(width)
        self.hidden_norm = _Norm(width)
        self.self_attn = _Attention(width, heads, groups, size)
        self.post_attention_layernorm = _Norm(width)
        self.mlp = _Mlp(width, inner)


class Head(nn.Module):
    """The head. Its embedding is the target's, its output rows those of its vocabulary.

    Args:
        target: whose head it is.
        vocabulary: [N] token numbers that it can draft, ascending.
        inner: width of the MLP.
    """

    def __init__(self, target: Target, vocabulary: Tensor, inner: int) -> None:
        super().__init__()
        config = target.config
        width, heads = config["hidden_size"], config["num_attention_heads"]
        groups, size = config["num_key_value_heads"], config["head_dim"]
        self.target, self.vocabulary, self.inner = target, vocabulary, inner
        self.fc_norm = nn.ModuleList([_Norm(width) for _ in LAYERS])
        self.fc = nn.Linear(len(LAYERS) * width, width, bias=False)
        self.midlayer = _Layer(width, heads, groups, size, inner)
        self.norm = _Norm(width)
        self.register_buffer("rows", target.embedding[vocabulary], persistent=False)

    def read(self, streams: Tensor) -> Tensor:
        """Return what pass 0 reads [..., width] of streams [..., layers, width]."""
        normed = [norm(streams[..., at, :]) for at, norm in enumerate(self.fc_norm)]
        return self.fc(torch.cat(normed, dim=-1))

    def forward(
        self, tokens: Tensor, hidden: Tensor, position: Tensor, before: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Run a pass over all rows.

        Args:
            tokens: [B, T] the token after each row, and after the passes before.
            hidden: [B, T, width] of `read`, or of the pass before.
            position: [T].
            before: keys and values of the passes before.

        Returns (normed output [B, T, width], what the next pass reads).
        """
        layer = self.midlayer
        embedded = layer.input_layernorm(self.target.embedding[tokens])
        mixed = torch.cat([embedded, layer.hidden_norm(hidden)], dim=-1)
        stream = hidden + layer.self_attn(mixed, position, before)
        stream = stream + layer.mlp(layer.post_attention_layernorm(stream))
        return self.norm(stream), stream

    def logits(self, normed: Tensor) -> Tensor:
        """Return logits [..., N] over the vocabulary."""
        return normed @ self.rows.T.to(normed.dtype)

    def save(self, folder: Path) -> None:
        """Write a folder that vLLM serves, in bf16."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        config = {
            **self.target.config,
            "architectures": ["LlamaForCausalLMEagle3"],
            "num_hidden_layers": 1,
            "intermediate_size": self.inner,
            "draft_vocab_size": len(self.vocabulary),
            "eagle_aux_hidden_state_layer_ids": list(LAYERS),
            "fc_norm": True,
            "tie_word_embeddings": False,
        }
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        made = {name: weight.to(torch.bfloat16) for name, weight in self.state_dict().items()}
        made["lm_head.weight"] = self.rows.to(torch.bfloat16)
        made["d2t"] = self.vocabulary - torch.arange(len(self.vocabulary))
        save_file(
            {name: weight.contiguous() for name, weight in made.items()},
            folder / "model.safetensors",
            metadata={"format": "pt"},
        )

    @classmethod
    def load(cls, folder: Path, target: Target) -> Head:
        """Read a folder that `save` has written."""
        from safetensors.torch import load_file

        made = load_file(folder / "model.safetensors")
        vocabulary = made.pop("d2t")
        vocabulary = vocabulary + torch.arange(len(vocabulary))
        made.pop("lm_head.weight")
        head = cls(target, vocabulary, made["midlayer.mlp.up_proj.weight"].shape[0])
        head.load_state_dict({name: weight.float() for name, weight in made.items()})
        return head


def common_tokens(tokens: Iterable[Tensor], size: int, total: int) -> Tensor:
    """Return the `size` tokens, of `total`, that occur most often, ascending."""
    counts = sum(torch.bincount(each.long(), minlength=total) for each in tokens)
    assert isinstance(counts, Tensor)
    return counts.topk(size).indices.sort().values
