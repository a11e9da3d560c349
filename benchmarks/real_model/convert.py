"""SmolLM2's GGUF file as a model folder that vLLM and transformers read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from .gguf_file import Array, Model

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL = 3
"""ggml's type of tokens that stand for no text."""


def rows_as_trained(weight: Array, heads: int) -> Array:
    """Undo the order that llama.cpp gives the rows of q and k, whose rotary pairs are neighbours.

    Args:
        weight: [heads * head size, inputs], the two halves of a head interleaved.
        heads: of this projection.

    Returns the same rows, each head's first halves before its second ones.
    """
    rows, inputs = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, inputs)
    return pairs.swapaxes(1, 2).reshape(rows, inputs)


def tensors_of(model: Model) -> dict[str, Array]:
    """Weights by transformers' names; the output head is the embedding's."""
    fields = model.fields
    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    made = {
        "model.embed_tokens.weight": model.tensors["token_embd.weight"],
        "model.norm.weight": model.tensors["output_norm.weight"],
    }
    for layer in range(fields["llama.block_count"]):
        for ours, theirs in _LAYER.items():
            weight = model.tensors[f"blk.{layer}.{ours}.weight"]
            if ours in heads:
                weight = rows_as_trained(weight, heads[ours])
            made[f"model.layers.{layer}.{theirs}.weight"] = weight
    return made


def config_of(fields: dict[str, Any]) -> dict[str, Any]:
    """`config.json` of the metadata."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": fields["llama.vocab_size"],
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "hidden_act": "silu",
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": round(fields["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }


def write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    """Write the byte-level BPE with its chat template; digits are tokens of their own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({text: number for number, text in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(
        [
            AddedToken(text, normalized=False, special=True)
            for text, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL
        ]
    )
    made.save(str(folder / "tokenizer.json"))
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": fields["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": fields["tokenizer.chat_template"],
        **{key: tokens[fields[f"tokenizer.ggml.{name}_token_id"]] for key, name in named.items()},
    }
    _write(folder / "tokenizer_config.json", config)


def write_model(model: Model, folder: Path) -> None:
    """Write config, tokenizer and weights in bf16 into an empty folder."""
    import torch
    from safetensors.torch import save_file

    config = config_of(model.fields)
    _write(folder / "config.json", config)
    _write(
        folder / "generation_config.json",
        {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
    )
    write_tokenizer(model.fields, folder)
    weights = {
        name: torch.from_numpy(np.array(weight)).to(torch.bfloat16).contiguous()
        for name, weight in tensors_of(model).items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write(file: Path, body: dict[str, Any]) -> None:
    file.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
