"""What a vLLM configuration allows: how K can be steered, and where we only watch.

Read from `VllmConfig` after vLLM has resolved it. The rules and their reasons are in PATCHES.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from adaptive_spec.values import Capability, Level

DEPTH_FOLLOWS = frozenset({"draft_model", "eagle", "eagle3", "mtp", "ngram"})
"""Methods whose V1 proposer drafts as many tokens as the scheduler asks for. The others assert
that they are asked for the configured number, or take no number at all."""

WITHOUT_MODEL = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that draft without running a model: K = 0 costs them nothing."""


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a configuration.

    Attributes:
        capability: what may be decided; None where there is nothing to decide (inert).
        method: vLLM's name of the speculation method.
        runner: ``V1`` or ``V2`` model runner.
        scheduling: ``sync`` or ``async``.
        inert: why nothing is switched on; empty if something is.
        shadow: why we only watch; empty if we may act.
        notes: what isn't supported here, for the start line.
    """

    capability: Capability | None
    method: str = ""
    runner: str = ""
    scheduling: str = ""
    inert: str = ""
    shadow: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def detect(vllm_config: Any) -> Support:
    """Read a resolved `VllmConfig`."""
    model, speculation = vllm_config.model_config, vllm_config.speculative_config
    inert = _inert_reason(model, speculation)
    if inert:
        return Support(capability=None, inert=inert)
    method = str(speculation.method)
    fixed_depth = _fixed_depth_reason(vllm_config, method)
    uniform = _uniform_reason(vllm_config)
    level = Level.FULL
    if fixed_depth:
        level = Level.VERIFY
    if uniform:
        level = Level.UNIFORM
    return Support(
        capability=Capability(
            level=level,
            max_draft_tokens=int(vllm_config.num_speculative_tokens),
            depth_follows=not fixed_depth,
            off_pass=method not in WITHOUT_MODEL,
        ),
        method=method,
        runner="V2" if vllm_config.use_v2_model_runner else "V1",
        scheduling="async" if vllm_config.scheduler_config.async_scheduling else "sync",
        shadow=tuple(_shadow_reasons(vllm_config)),
        notes=tuple(note for note in (fixed_depth, uniform, _lora_note(vllm_config)) if note),
    )


def _inert_reason(model: Any, speculation: Any) -> str:
    if speculation is None:
        return "no speculation is configured: add --speculative-config"
    if model.runner_type == "pooling":
        return "a pooling model does not decode"
    if model.is_diffusion:
        return "a diffusion model has no draft tokens to choose"
    return ""


def _fixed_depth_reason(vllm_config: Any, method: str) -> str:
    """Why the number of draft passes can't follow the decision; empty if it can."""
    speculation = vllm_config.speculative_config
    if method not in DEPTH_FOLLOWS:
        return f"draft depth is fixed with {method}, only verification is trimmed"
    if speculation.parallel_drafting:
        return "draft depth is fixed with parallel drafting, only verification is trimmed"
    if speculation.use_multi_module_mtp():
        return "draft depth is fixed with several MTP modules, only verification is trimmed"
    if vllm_config.parallel_config.data_parallel_size > 1:
        return "draft depth is fixed with data parallelism, only verification is trimmed"
    return ""


def _uniform_reason(vllm_config: Any) -> str:
    """Why all requests must run one K; empty if each may have its own."""
    from vllm.config import CUDAGraphMode

    if vllm_config.compilation_config.cudagraph_mode == CUDAGraphMode.NONE:
        return ""
    return "captured graphs: one K per batch"


def _shadow_reasons(vllm_config: Any) -> list[str]:
    """Set-ups in which acting has not been tested."""
    speculation, model = vllm_config.speculative_config, vllm_config.model_config
    reasons = []
    if vllm_config.use_v2_model_runner:
        reasons.append("model runner V2 (VLLM_USE_V2_MODEL_RUNNER=0 selects V1)")
    if vllm_config.parallel_config.pipeline_parallel_size > 1:
        reasons.append("pipeline parallelism")
    if model.is_hybrid or model.has_inner_state:
        reasons.append("hybrid or state-space model")
    if vllm_config.kv_transfer_config is not None:
        reasons.append("KV connector or prefill/decode disaggregation")
    if speculation.rejection_sample_method != "standard":
        reasons.append(f"rejection_sample_method={speculation.rejection_sample_method}")
    if speculation.enable_adaptive_verification:
        reasons.append("enable_adaptive_verification already trims")
    return reasons


def _lora_note(vllm_config: Any) -> str:
    return "LoRA adapters share one acceptance model" if vllm_config.lora_config else ""
