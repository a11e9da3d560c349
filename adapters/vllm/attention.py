"""Whether vLLM's attention verifies requests with different K rightly in one batch.

An MLA backend that decodes only rows of equal length computes the other rows as parts of prompts.
Their context is as long as the scheduler assumes (`mla_attention.py:2588`), and with asynchronous
scheduling that length includes drafts that have been rejected since.
"""

from __future__ import annotations

from typing import Any


def mixed_lengths_refusal(vllm_config: Any) -> str:
    """Why no request may verify fewer drafts than the others; empty if each may."""
    model = vllm_config.model_config
    if not getattr(model, "use_mla", False) or not vllm_config.scheduler_config.async_scheduling:
        return ""
    if hasattr(model.hf_text_config, "compress_ratios"):
        return ""  # DeepSeek-V4 has backends of its own, which take rows of any length
    way_out = "asynchronous scheduling"
    if vllm_config.parallel_config.pipeline_parallel_size == 1:  # else wrong output: vllm#52071
        way_out += " (--no-async-scheduling lets the plugin steer)"
    try:
        backend = _mla_backend(vllm_config)
        builder = backend.get_builder_cls()
    except Exception as error:
        return f"MLA on an attention backend that is unknown here ({error}), with {way_out}"
    lengths = getattr(builder, "query_len_support", None)
    if lengths is None:  # a sparse one
        mixed = not getattr(builder, "require_uniform_decodes", True)
    else:
        mixed = lengths.name == "VARLEN"
    return "" if mixed else f"{backend.get_name()} decodes rows of one length only, with {way_out}"


def _mla_backend(vllm_config: Any) -> Any:
    """The backend class that vLLM chooses for this model on this machine."""
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.selector import get_attn_backend

    model = vllm_config.model_config
    with set_current_vllm_config(vllm_config):
        return get_attn_backend(
            head_size=model.get_head_size(),
            dtype=model.dtype,
            kv_cache_dtype=vllm_config.cache_config.cache_dtype,
            use_mla=True,
            use_sparse=hasattr(model.hf_text_config, "index_topk"),
            num_heads=model.get_num_attention_heads(vllm_config.parallel_config),
        )
