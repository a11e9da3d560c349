"""Tensors of the small models, from a seed: targets, and drafters made of their targets' parts.

Transformers initialises the targets that it has. Branches are damped, so that the residual stream
leads and untrained drafters are accepted now and then. A drafter's layer is the target's last one,
and its fusion of embedding and hidden state passes one of them on.
"""

from pathlib import Path
from typing import Any, TypeAlias

from family_configs import HIDDEN, MEDUSA, VOCABULARY

DAMPING = 0.35
Tensors: TypeAlias = dict[str, Any]


def initialised(place: Path, config: dict[str, Any]) -> Tensors:
    """Random tensors under the names of a published checkpoint, which transformers knows."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(7)
    own = {key: value for key, value in config.items() if key != "architectures"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**own))
    model.to(torch.float32).save_pretrained(place)
    made = _randomised(load_file(place / "model.safetensors"))
    if config["tie_word_embeddings"]:  # else each token predicts itself
        made |= {name: made[name] * 0.06 for name in made if name.endswith("embed_tokens.weight")}
    return made


def _randomised(tensors: Tensors) -> Tensors:
    import torch

    draw = torch.Generator().manual_seed(11)
    return {name: _value(name, tensor, draw) for name, tensor in sorted(tensors.items())}


def _value(name: str, tensor: Any, draw: Any) -> Any:
    """Weights large enough to make texts differ; branches damped."""
    import torch

    if tensor.dim() < 2 or "conv1d" in name:
        return tensor.clone()
    noise = torch.randn(tensor.shape, generator=draw)
    if "embed" in name:
        return noise
    if any(part in name for part in ("o_proj", "out_proj", "down_proj")):
        noise = noise * DAMPING
    if "lm_head" in name:
        noise = noise * 2
    return noise * tensor.shape[-1] ** -0.5


def _layer(tensors: Tensors, index: int) -> Tensors:
    """A layer's tensors, by what follows ``model.layers.INDEX.``."""
    start = f"model.layers.{index}."
    return {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}


def _fusion(parts: int, passed: int) -> Any:
    """A projection of several hidden-size inputs to one that passes one of them on."""
    import torch

    weight = torch.randn(HIDDEN, parts * HIDDEN, generator=torch.Generator().manual_seed(13))
    weight *= 0.3 * (parts * HIDDEN) ** -0.5
    weight[:, passed * HIDDEN : (passed + 1) * HIDDEN] += torch.eye(HIDDEN)
    return weight


def _prefixed(prefix: str, tensors: Tensors) -> Tensors:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _ones() -> Any:
    import torch

    return torch.ones(HIDDEN)


def nextn_modules(target: Tensors, config: dict[str, Any]) -> Tensors:
    """Modules after the last layer, as DeepSeek and GLM number them."""
    last = config["num_hidden_layers"]
    made: Tensors = {}
    for index in range(last, last + config["num_nextn_predict_layers"]):
        module = _layer(target, last - 1) | {
            "enorm.weight": _ones(),
            "hnorm.weight": _ones(),
            "eh_proj.weight": _fusion(2, 0),
            "shared_head.norm.weight": target["model.norm.weight"],
            "shared_head.head.weight": target["lm_head.weight"],
            "embed_tokens.weight": target["model.embed_tokens.weight"],
        }
        made |= _prefixed(f"model.layers.{index}.", module)
    return made


def mimo_module(target: Tensors, config: dict[str, Any]) -> Tensors:
    module = _layer(target, config["num_hidden_layers"] - 1) | {
        "token_layernorm.weight": _ones(),
        "hidden_layernorm.weight": _ones(),
        "input_proj.weight": _fusion(2, 1),
        "final_layernorm.weight": target["model.norm.weight"],
    }
    return _prefixed("model.mtp_layers.0.", module)


def qwen3_next_module(target: Tensors, config: dict[str, Any]) -> Tensors:
    import torch

    module = _prefixed("layers.0.", _layer(target, config["num_hidden_layers"] - 1)) | {
        "fc.weight": _fusion(2, 0),
        "norm.weight": target["model.norm.weight"],
        "pre_fc_norm_embedding.weight": torch.zeros(HIDDEN),
        "pre_fc_norm_hidden.weight": torch.zeros(HIDDEN),
    }
    return _prefixed("mtp.", module)


def eagle3_head(target: Tensors) -> Tensors:
    """One layer whose attention reads embedding and hidden state side by side."""
    import torch

    layer = _layer(target, 3)
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = layer[f"self_attn.{name}.weight"]
        layer[f"self_attn.{name}.weight"] = torch.cat([weight, weight], dim=1) / 2
    layer["hidden_norm.weight"] = _ones()
    return _prefixed("midlayer.", layer) | {
        "fc.weight": _fusion(3, 2),
        "norm.weight": target["model.norm.weight"],
        "lm_head.weight": target["lm_head.weight"],
    }


def step3p5_target(config: dict[str, Any]) -> Tensors:
    """A target under the names of StepFun's checkpoints; norms add one to their weight."""
    import torch

    head, heads = config["head_dim"], config["num_attention_heads"]
    grouped, hidden = config["num_attention_groups"], config["hidden_size"]
    experts, wide = config["moe_num_experts"], config["moe_intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (config["vocab_size"], hidden),
    }
    for index in range(config["num_hidden_layers"]):
        layer: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_norm": (head,),
            "self_attn.k_norm": (head,),
            "self_attn.q_proj": (heads * head, hidden),
            "self_attn.k_proj": (grouped * head, hidden),
            "self_attn.v_proj": (grouped * head, hidden),
            "self_attn.o_proj": (hidden, heads * head),
        }
        mlps: dict[str, tuple[tuple[int, ...], int]] = {"mlp": ((), config["intermediate_size"])}
        if str(index) == config["moe_layers_enum"]:
            layer["moe.gate"] = (experts, hidden)
            mlps = {"moe": ((experts,), wide), "share_expert": ((), config["share_expert_dim"])}
        for mlp, (stacked, size) in mlps.items():
            layer |= {f"{mlp}.{part}_proj": (*stacked, size, hidden) for part in ("gate", "up")}
            layer[f"{mlp}.down_proj"] = (*stacked, hidden, size)
        shapes |= {f"model.layers.{index}.{part}.weight": size for part, size in layer.items()}
    made = {name: torch.zeros(shape) for name, shape in shapes.items()}
    return _randomised(made) | {
        f"model.layers.{config['moe_layers_enum']}.moe.router_bias": torch.zeros(experts)
    }


def medusa_heads(target: Tensors) -> Tensors:
    """Heads that read from the last hidden state alone what comes two to five tokens later."""
    import torch

    draw = torch.Generator().manual_seed(19)
    made: Tensors = {}
    for index in range(MEDUSA["num_heads"]):
        made |= {
            f"blocks.{index}.layers.0.weight": torch.randn(HIDDEN, HIDDEN, generator=draw) * 0.05,
            f"lm_heads.{index}.weight": target["lm_head.weight"],
        }
    return made


def dflash_drafter(target: Tensors) -> Tensors:
    made = _prefixed("layers.0.", _layer(target, 2)) | _prefixed("layers.1.", _layer(target, 3))
    return made | {
        "fc.weight": _fusion(2, 1),
        "hidden_norm.weight": _ones(),
        "norm.weight": target["model.norm.weight"],
    }


def dspark_drafter(target: Tensors) -> Tensors:
    import torch

    draw = torch.Generator().manual_seed(17)
    return dflash_drafter(target) | {
        "markov_head.markov_w1.weight": torch.randn(VOCABULARY, 8, generator=draw) * 0.1,
        "markov_head.markov_w2.weight": torch.randn(VOCABULARY, 8, generator=draw) * 0.1,
        "confidence_head.proj.weight": torch.randn(1, HIDDEN + 8, generator=draw) * 0.1,
        "confidence_head.proj.bias": torch.zeros(1),
        "embed_tokens.weight": target["model.embed_tokens.weight"],
        "lm_head.weight": target["lm_head.weight"],
    }
