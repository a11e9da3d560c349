"""Small checkpoints of the model families that people serve, made from a seed.

    python tests/vllm/support/family_checkpoints.py OUT_DIR [FAMILY ...]

makes OUT_DIR/FAMILY/target and, for a drafter of its own, OUT_DIR/FAMILY/draft: a config.json and a
model.safetensors that vLLM's own code loads. Transformers initialises the targets. A drafter's
layer is the target's last one, and its fusion of embedding and hidden state passes one of them on.
Branches are damped, so that the residual stream leads and untrained drafters are accepted now and
then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

VOCABULARY, HIDDEN, DAMPING = 320, 64, 0.35
Tensors: TypeAlias = dict[str, Any]

_COMMON: dict[str, Any] = dict(
    vocab_size=VOCABULARY,
    hidden_size=HIDDEN,
    intermediate_size=128,
    max_position_embeddings=2048,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
    tie_word_embeddings=False,
    dtype="float32",
    rms_norm_eps=1e-6,
    hidden_act="silu",
)
_HEADS: dict[str, Any] = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=32)
_ROPE: dict[str, Any] = dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0))
_DENSE = _COMMON | _HEADS | _ROPE
_LLAMA = _DENSE | dict(model_type="llama", architectures=["LlamaForCausalLM"], num_hidden_layers=4)
_QWEN3 = _DENSE | dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], num_hidden_layers=4)
_EXPERTS: dict[str, Any] = dict(
    n_routed_experts=4,
    n_shared_experts=1,
    num_experts_per_tok=2,
    moe_intermediate_size=64,
    first_k_dense_replace=1,
    n_group=1,
    topk_group=1,
    norm_topk_prob=True,
    routed_scaling_factor=1.0,
)
_GLM = (
    _DENSE
    | _EXPERTS
    | dict(
        model_type="glm4_moe",
        architectures=["Glm4MoeForCausalLM"],
        num_hidden_layers=3,
        use_qk_norm=True,
        partial_rotary_factor=0.5,
        num_nextn_predict_layers=1,
    )
)
_MIMO = (
    _COMMON
    | _ROPE
    | dict(
        model_type="qwen2",
        architectures=["MiMoForCausalLM"],
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_nextn_predict_layers=1,
    )
)
_QWEN3_NEXT = (
    _COMMON
    | _HEADS
    | dict(
        model_type="qwen3_next",
        architectures=["Qwen3NextForCausalLM"],
        num_hidden_layers=4,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        full_attention_interval=4,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_num_key_heads=1,
        linear_num_value_heads=2,
        partial_rotary_factor=0.25,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25),
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=64,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        num_nextn_predict_layers=1,
    )
)
_FALCON = _DENSE | dict(
    model_type="falcon_h1",
    architectures=["FalconH1ForCausalLM"],
    num_hidden_layers=3,
    mamba_d_ssm=128,
    mamba_n_heads=4,
    mamba_d_head=32,
    mamba_n_groups=1,
    mamba_d_state=16,
    mamba_d_conv=4,
    mamba_expand=2,
    mamba_chunk_size=64,
    mlp_multipliers=[1.0, 1.0],
    ssm_multipliers=[1.0] * 5,
)
_GEMMA_TEXT = (
    _COMMON
    | _HEADS
    | dict(
        model_type="gemma4_text",
        architectures=["Gemma4ForCausalLM"],
        num_hidden_layers=4,
        hidden_activation="gelu_pytorch_tanh",
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=32,
        global_head_dim=32,
        num_global_key_value_heads=2,
        num_kv_shared_layers=0,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=VOCABULARY,
        attention_k_eq_v=False,
        final_logit_softcapping=None,
        tie_word_embeddings=True,
        rope_parameters=dict(
            full_attention=dict(rope_type="default", rope_theta=1e6),
            sliding_attention=dict(rope_type="default", rope_theta=1e4),
        ),
    )
)
_GEMMA_ASSISTANT: dict[str, Any] = dict(
    model_type="gemma4_assistant",
    architectures=["Gemma4AssistantForCausalLM"],
    backbone_hidden_size=HIDDEN,
    use_ordered_embeddings=False,
    tie_word_embeddings=True,
    dtype="float32",
    text_config=_GEMMA_TEXT
    | dict(
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        vocab_size_per_layer_input=0,
        num_kv_shared_layers=2,
    ),
)
_STEP3P5 = _COMMON | dict(
    model_type="step3p5",
    architectures=["Step3p5ForCausalLM"],
    num_hidden_layers=3,
    num_attention_heads=4,
    num_attention_groups=2,
    head_dim=32,
    sliding_window=32,  # every other layer's, where no layer_types are given
    att_impl_type="GQA",
    rope_theta=10000.0,
    moe_layers_enum="1",
    moe_num_experts=4,
    moe_top_k=2,
    moe_intermediate_size=64,
    moe_router_activation="softmax",  # the CPU has no router with sigmoid and no groups
    share_expert_dim=64,
    num_nextn_predict_layers=2,
)
_MEDUSA: dict[str, Any] = dict(
    model_type="medusa",
    architectures=["MedusaModel"],
    hidden_size=HIDDEN,
    vocab_size=VOCABULARY,
    num_heads=4,
    num_hidden_layers=1,
    dtype="float32",
)
_EAGLE3 = _LLAMA | dict(
    architectures=["LlamaForCausalLMEagle3"],
    num_hidden_layers=1,
    draft_vocab_size=VOCABULARY,
    eagle_aux_hidden_state_layer_ids=[1, 2, 3],
)
_BLOCK = _QWEN3 | dict(
    num_hidden_layers=2, block_size=8, num_target_layers=4, layer_types=["full_attention"] * 2
)
_DFLASH = _BLOCK | dict(
    architectures=["DFlashDraftModel"],
    dflash_config=dict(target_layer_ids=[0, 2], mask_token_id=3),
)
_DSPARK = _BLOCK | dict(
    architectures=["Qwen3DSparkModel"],
    target_layer_ids=[0, 2],
    mask_token_id=3,
    markov_rank=8,
    markov_head_type="vanilla",
    enable_confidence_head=True,
    confidence_head_with_markov=True,
)


@dataclass(frozen=True)
class Family:
    """A target, what drafts for it, and how.

    Attributes:
        target: config.json of the target.
        target_tensors: makes the target's tensors, where transformers does not know the model.
        method: vLLM's name of the speculation method.
        own_drafter: adds the drafter's tensors to the target's.
        draft: config.json of a separate drafter; None if it is part of the target.
        draft_tensors: makes the separate drafter's tensors from the target's.
        operators: fixes of `cpu_operators` that the family needs.
    """

    target: dict[str, Any]
    method: str = "mtp"
    own_drafter: Callable[[Tensors, dict[str, Any]], Tensors] = field(default=lambda *_: {})
    draft: dict[str, Any] | None = None
    draft_tensors: Callable[[Tensors], Tensors] | None = None
    operators: tuple[str, ...] = ()
    target_tensors: Callable[[dict[str, Any]], Tensors] | None = None

    def speculation(self, folder: Path, k: int) -> dict[str, Any]:
        """vLLM's --speculative-config, for a model in this folder."""
        config = {"method": self.method, "num_speculative_tokens": k}
        return config | ({"model": str(folder / "draft")} if self.draft is not None else {})


def build(folder: Path, name: str) -> Path:
    """Make the checkpoint of a family; return its folder."""
    family, place = FAMILIES[name], folder / name
    if (place / "done").exists():
        return place
    make = family.target_tensors or partial(_initialised, place / "target")
    target = make(family.target)
    _write(place / "target", family.target, target | family.own_drafter(target, family.target))
    if family.draft is not None:
        if family.draft_tensors is not None:
            _write(place / "draft", family.draft, family.draft_tensors(target))
        else:
            _write(place / "draft", family.draft, _initialised(place / "draft", family.draft))
    (place / "done").touch()
    return place


def _initialised(place: Path, config: dict[str, Any]) -> Tensors:
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


def _write(place: Path, config: dict[str, Any], tensors: Tensors) -> None:
    from safetensors.torch import save_file

    place.mkdir(parents=True, exist_ok=True)
    for leftover in place.iterdir():
        leftover.unlink()
    (place / "config.json").write_text(json.dumps(config, indent=1))
    whole = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    save_file(whole, place / "model.safetensors", metadata={"format": "pt"})


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


def _nextn(target: Tensors, config: dict[str, Any]) -> Tensors:
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


def _mimo(target: Tensors, config: dict[str, Any]) -> Tensors:
    module = _layer(target, config["num_hidden_layers"] - 1) | {
        "token_layernorm.weight": _ones(),
        "hidden_layernorm.weight": _ones(),
        "input_proj.weight": _fusion(2, 1),
        "final_layernorm.weight": target["model.norm.weight"],
    }
    return _prefixed("model.mtp_layers.0.", module)


def _qwen3_next(target: Tensors, config: dict[str, Any]) -> Tensors:
    import torch

    module = _prefixed("layers.0.", _layer(target, config["num_hidden_layers"] - 1)) | {
        "fc.weight": _fusion(2, 0),
        "norm.weight": target["model.norm.weight"],
        "pre_fc_norm_embedding.weight": torch.zeros(HIDDEN),
        "pre_fc_norm_hidden.weight": torch.zeros(HIDDEN),
    }
    return _prefixed("mtp.", module)


def _eagle3(target: Tensors) -> Tensors:
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


def _step3p5(config: dict[str, Any]) -> Tensors:
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


def _medusa(target: Tensors) -> Tensors:
    """Heads that read from the last hidden state alone what comes two to five tokens later."""
    import torch

    draw = torch.Generator().manual_seed(19)
    made: Tensors = {}
    for index in range(_MEDUSA["num_heads"]):
        made |= {
            f"blocks.{index}.layers.0.weight": torch.randn(HIDDEN, HIDDEN, generator=draw) * 0.05,
            f"lm_heads.{index}.weight": target["lm_head.weight"],
        }
    return made


def _block_drafter(target: Tensors) -> Tensors:
    made = _prefixed("layers.0.", _layer(target, 2)) | _prefixed("layers.1.", _layer(target, 3))
    return made | {
        "fc.weight": _fusion(2, 1),
        "hidden_norm.weight": _ones(),
        "norm.weight": target["model.norm.weight"],
    }


def _dspark(target: Tensors) -> Tensors:
    import torch

    draw = torch.Generator().manual_seed(17)
    return _block_drafter(target) | {
        "markov_head.markov_w1.weight": torch.randn(VOCABULARY, 8, generator=draw) * 0.1,
        "markov_head.markov_w2.weight": torch.randn(VOCABULARY, 8, generator=draw) * 0.1,
        "confidence_head.proj.weight": torch.randn(1, HIDDEN + 8, generator=draw) * 0.1,
        "confidence_head.proj.bias": torch.zeros(1),
        "embed_tokens.weight": target["model.embed_tokens.weight"],
        "lm_head.weight": target["lm_head.weight"],
    }


FAMILIES: dict[str, Family] = {
    "mimo_mtp": Family(_MIMO, own_drafter=_mimo),
    "glm_moe_mtp": Family(_GLM, own_drafter=_nextn),
    "several_mtp_modules": Family(_GLM | {"num_nextn_predict_layers": 2}, own_drafter=_nextn),
    "qwen3_next_mtp": Family(
        _QWEN3_NEXT, own_drafter=_qwen3_next, operators=("gdn_ragged", "gdn_float32")
    ),
    "falcon_h1": Family(
        _FALCON,
        "draft_model",
        draft=_LLAMA | {"num_hidden_layers": 1},
        operators=("mamba_conv", "mamba_ssm"),
    ),
    "gemma4": Family(_GEMMA_TEXT, draft=_GEMMA_ASSISTANT),
    "step3p5": Family(_STEP3P5, own_drafter=_nextn, target_tensors=_step3p5),
    "medusa": Family(_LLAMA, "medusa", draft=_MEDUSA, draft_tensors=_medusa),
    "eagle3": Family(_LLAMA, "eagle3", draft=_EAGLE3, draft_tensors=_eagle3),
    "dflash": Family(_QWEN3, "dflash", draft=_DFLASH, draft_tensors=_block_drafter),
    "dspark": Family(_QWEN3, "dspark", draft=_DSPARK, draft_tensors=_dspark),
}


if __name__ == "__main__":
    for chosen in sys.argv[2:] or FAMILIES:
        print(build(Path(sys.argv[1]), chosen))
