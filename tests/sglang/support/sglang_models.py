"""The bench models as SGLang wants them, and an EAGLE3 head built from the bench draft.

`target` and `draft` are served as they are. EAGLE's head gets the bias that SGLang's class has.
`as_qwen3` is for attention DP, which SGLang's Llama does not have.
No EAGLE3 head is trained: `as_eagle3` writes the one-layer draft into the shape of a head.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.bench_pair.build import build
from benchmarks.bench_pair.names import VOCABULARY_SIZE

WIDTH = 576
"""Of the EAGLE3 head. Must differ from the target's width, or SGLang replaces the embeddings, and
from the width of the target's features, or it leaves out `fc`."""
NORMED_SHARE = 0.25
SHARPNESS = 1000.0


def build_models(folder: Path) -> dict[str, Path]:
    """Complete model folders `target`, `draft`, `eagle` and `eagle3` under `folder`."""
    made = build(folder, ("target", "draft", "eagle"))
    made["eagle"] = _write(folder / "eagle_sglang", *as_eagle(*_read(made["eagle"])))
    made["eagle3"] = _write(folder / "eagle3_sglang", *as_eagle3(*_read(made["draft"])))
    return made


def as_eagle(tensors: dict[str, Tensor], config: dict[str, Any]) -> tuple[Any, Any]:
    """EAGLE's head for SGLang: its class adds a bias in `fc`, random unless the file has one."""
    bias = torch.zeros(config["hidden_size"], dtype=tensors["fc.weight"].dtype)
    named = config | {"architectures": ["LlamaForCausalLMEagle"], "tie_word_embeddings": False}
    return tensors | {"fc.bias": bias}, named


def as_eagle3(tensors: dict[str, Tensor], config: dict[str, Any]) -> tuple[Any, Any]:
    """A head of EAGLE3 that computes what the one-layer draft model computes.

    The head (srt/models/llama_eagle3.py) has a residual stream that starts with the target's
    features, later with its own last output, where the draft has the token's embedding; and its
    attention reads [norm(embedding), norm(that stream)]. So:

    - `fc` is zero: the target's features are not used.
    - An embedding row holds the draft's embedding e and, scaled, norm(e), then a 1, then what makes
      the row's mean square 1: the head's norm of it changes nothing.
    - Three extra key-value heads have the same query and key everywhere, so that rotary positions
      make each token attend to itself alone. They put e into the stream and take its old content
      out, which `norm_output` keeps at mean square 1 and so readable through the norm.
    - Norms average over all entries, of which 192 are in use: their weights shrink accordingly.
    """
    width, size = config["hidden_size"], config["head_dim"]
    embedding = tensors["model.embed_tokens.weight"].float()
    layer = {
        name.removeprefix("model.layers.0."): tensor.float()
        for name, tensor in tensors.items()
        if name.startswith("model.layers.0.")
    }
    epsilon = config["rms_norm_eps"]
    normed = embedding * (embedding.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    normed *= layer["input_layernorm.weight"] * NORMED_SHARE
    rows = torch.cat([embedding, normed, torch.ones(len(embedding), 1)], dim=1)
    rest = WIDTH - rows.square().sum(1, keepdim=True)
    if bool((rest < 0).any()):
        raise ValueError("the draft's embeddings are too large for the head's width")
    unused = torch.zeros(len(embedding), WIDTH - rows.size(1) - 1)
    rows = torch.cat([rows, rest.sqrt(), unused], dim=1)

    one = 2 * width
    carriers = width // size
    group = config["num_attention_heads"]
    heads, key_heads = group * (1 + carriers), 1 + carriers
    query, key = torch.zeros(heads * size, 2 * WIDTH), torch.zeros(key_heads * size, 2 * WIDTH)
    value, output = torch.zeros(key_heads * size, 2 * WIDTH), torch.zeros(WIDTH, heads * size)
    for made, name in ((query, "q_proj"), (key, "k_proj"), (value, "v_proj")):
        weight = layer[f"self_attn.{name}.weight"]
        made[: weight.size(0), width : 2 * width] = weight / NORMED_SHARE
    output[:width, : group * size] = layer["self_attn.o_proj.weight"]
    for carrier in range(carriers):
        head, key_head = group * (1 + carrier) * size, (1 + carrier) * size
        entries = torch.arange(carrier * size, (carrier + 1) * size)
        query[head : head + size // 2, one] = SHARPNESS**0.5
        key[key_head : key_head + size // 2, one] = SHARPNESS**0.5
        value[key_head + torch.arange(size), entries] = 1.0
        value[key_head + torch.arange(size), WIDTH + entries] = -1.0
        output[entries, head + torch.arange(size)] = 1.0

    shrink = (width / WIDTH) ** 0.5
    after_attention = torch.zeros(WIDTH)
    after_attention[:width] = layer["post_attention_layernorm.weight"] * shrink
    reads = torch.zeros(2, config["intermediate_size"], WIDTH)
    reads[0, :, :width] = layer["mlp.gate_proj.weight"]
    reads[1, :, :width] = layer["mlp.up_proj.weight"]
    writes = torch.zeros(WIDTH, config["intermediate_size"])
    writes[:width] = layer["mlp.down_proj.weight"]
    scores = torch.zeros(VOCABULARY_SIZE, WIDTH)
    scores[:, :width] = embedding * tensors["model.norm.weight"].float() * shrink
    head_tensors = {
        "embed_tokens.weight": rows,
        "fc.weight": torch.zeros(WIDTH, 3 * 256),
        "midlayer.input_layernorm.weight": torch.ones(WIDTH),
        "midlayer.hidden_norm.weight": torch.ones(WIDTH),
        "midlayer.post_attention_layernorm.weight": after_attention,
        "midlayer.self_attn.q_proj.weight": query,
        "midlayer.self_attn.k_proj.weight": key,
        "midlayer.self_attn.v_proj.weight": value,
        "midlayer.self_attn.o_proj.weight": output,
        "midlayer.mlp.gate_proj.weight": reads[0],
        "midlayer.mlp.up_proj.weight": reads[1],
        "midlayer.mlp.down_proj.weight": writes,
        "norm.weight": torch.ones(WIDTH),
        "lm_head.weight": scores,
    }
    named = config | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "dtype": "float32",
        "hidden_size": WIDTH,
        "target_hidden_size": 256,
        "draft_vocab_size": VOCABULARY_SIZE,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "rms_norm_eps": epsilon * width / WIDTH,
        "tie_word_embeddings": False,
        "norm_output": True,
        "num_aux_hidden_states": 3,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]},
    }
    return head_tensors, named


def as_qwen3(target: Path, folder: Path) -> Path:
    """Write the target as a Qwen3, whose heads have norms; their weights are 1."""
    tensors, config = _read(target)
    for layer in range(config["num_hidden_layers"]):
        for norm in ("q_norm", "k_norm"):
            tensors[f"model.layers.{layer}.self_attn.{norm}.weight"] = torch.ones(
                config["head_dim"]
            )
    named = config | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    for file in target.glob("tokenizer*"):
        shutil.copy(file, folder)
    return _write(folder, tensors, named)


def _read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return load_file(folder / "model.safetensors"), config


def _write(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> Path:
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
