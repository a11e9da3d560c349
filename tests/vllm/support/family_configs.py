"""config.json of each small model: targets and drafters of the families that people serve."""

from typing import Any

VOCABULARY, HIDDEN = 320, 64

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
LLAMA = _DENSE | dict(model_type="llama", architectures=["LlamaForCausalLM"], num_hidden_layers=4)
QWEN3 = _DENSE | dict(model_type="qwen3", architectures=["Qwen3ForCausalLM"], num_hidden_layers=4)
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
GLM = (
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
DEEPSEEK = (
    _COMMON
    | _EXPERTS
    | dict(
        model_type="deepseek_v3",
        architectures=["DeepseekV3ForCausalLM"],
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=32,
        kv_lora_rank=512,  # the CPU's decoding kernel has these two sizes only
        qk_rope_head_dim=64,
        qk_nope_head_dim=32,
        v_head_dim=32,
        scoring_func="sigmoid",
        topk_method="noaux_tc",
        num_nextn_predict_layers=1,
        rope_parameters=dict(
            rope_type="yarn",
            rope_theta=10000.0,
            factor=4.0,
            original_max_position_embeddings=512,
            beta_fast=32,
            beta_slow=1,
            mscale=1.0,
            mscale_all_dim=1.0,
        ),
    )
)
MIMO = (
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
QWEN3_NEXT = (
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
FALCON = _DENSE | dict(
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
GEMMA_TEXT = (
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
GEMMA_ASSISTANT: dict[str, Any] = dict(
    model_type="gemma4_assistant",
    architectures=["Gemma4AssistantForCausalLM"],
    backbone_hidden_size=HIDDEN,
    use_ordered_embeddings=False,
    tie_word_embeddings=True,
    dtype="float32",
    text_config=GEMMA_TEXT
    | dict(
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        vocab_size_per_layer_input=0,
        num_kv_shared_layers=2,
    ),
)
STEP3P5 = _COMMON | dict(
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
MEDUSA: dict[str, Any] = dict(
    model_type="medusa",
    architectures=["MedusaModel"],
    hidden_size=HIDDEN,
    vocab_size=VOCABULARY,
    num_heads=4,
    num_hidden_layers=1,
    dtype="float32",
)
EAGLE3 = LLAMA | dict(
    architectures=["LlamaForCausalLMEagle3"],
    num_hidden_layers=1,
    draft_vocab_size=VOCABULARY,
    eagle_aux_hidden_state_layer_ids=[1, 2, 3],
)
_BLOCK = QWEN3 | dict(
    num_hidden_layers=2, block_size=8, num_target_layers=4, layer_types=["full_attention"] * 2
)
DFLASH = _BLOCK | dict(
    architectures=["DFlashDraftModel"], dflash_config=dict(target_layer_ids=[0, 2], mask_token_id=3)
)
DSPARK = _BLOCK | dict(
    architectures=["Qwen3DSparkModel"],
    target_layer_ids=[0, 2],
    mask_token_id=3,
    markov_rank=8,
    markov_head_type="vanilla",
    enable_confidence_head=True,
    confidence_head_with_markov=True,
)
