"""Capability of a TensorRT-LLM executor, read between its construction and the start of its loop.

Only the one-engine path (EAGLE3, MTP, draft model inside the target's forward pass) resolves K per
iteration.
"""

from __future__ import annotations

from typing import Any

from adaptive_spec.adapters.tensorrt_llm.ladder import (
    floor_of,
    is_a,
    is_dynamic,
    keeps_drafter_warm,
    lacks_room,
    ladder_of,
    may_vary,
)
from adaptive_spec.engines.support import Support
from adaptive_spec.errors import ConfigError
from adaptive_spec.step import Capability, Level


def detect(executor: Any, asked_ladder: tuple[int, ...] = ()) -> Support:
    """Return what can be steered on a built executor.

    Raises ConfigError, one line, where the configuration lacks one key.
    """
    spec_config = getattr(executor.model_engine, "spec_config", None)
    if spec_config is None:
        return Support(capability=None, inert="no speculation is configured: speculative_config")
    mode = spec_config.spec_dec_mode
    method = str(getattr(mode, "name", mode))
    if not may_vary(spec_config):
        return Support(capability=None, method=method, inert=f"{method} has a fixed draft length")
    if not is_dynamic(spec_config):
        raise ConfigError(
            "speculative_config.draft_len_schedule is not set: add "
            f"`draft_len_schedule: {{MAX_BATCH_SIZE: {spec_config.max_draft_len}}}`, which makes "
            "TensorRT-LLM resolve the draft length per iteration, or unset TLLM_ADAPTIVE_SPEC"
        )
    ladder = ladder_of(spec_config, asked_ladder)
    cramped = lacks_room(executor.resource_manager, int(executor.max_batch_size), ladder)
    ladder = ladder_of(spec_config, asked_ladder, only_scheduled=bool(cramped))
    return Support(
        capability=Capability(
            level=Level.UNIFORM,
            max_draft_tokens=int(spec_config.max_draft_len),
            ladder=ladder,
            off_pass=keeps_drafter_warm(spec_config),
        ),
        method=method,
        scheduling="plain" if executor.disable_overlap_scheduler else "overlap",
        shadow=tuple(_shadow_reasons(executor, spec_config)),
        notes=tuple(_notes(executor, spec_config, ladder, cramped)),
    )


def uses_kv_manager_v2(executor: Any) -> bool:
    """Whether KV blocks are reserved during scheduling, before K is known."""
    declared = getattr(executor, "_is_kv_manager_v2", None)
    if declared is not None:
        return bool(declared)
    return is_a(getattr(executor, "kv_cache_manager", None), "KVCacheManagerV2")


def _shadow_reasons(executor: Any, spec_config: Any) -> list[str]:
    """Return reasons for shadow mode: setting K is unsafe, or not known to be safe."""
    dist = executor.dist
    reasons = []
    if uses_kv_manager_v2(executor):
        reasons.append(
            "KV cache manager V2 reserves before K is known "
            "(kv_cache_config.use_kv_cache_manager_v2: false)"
        )
    if getattr(dist, "pp_size", 1) > 1:
        reasons.append("pipeline parallelism")
    if getattr(dist, "cp_size", 1) > 1:
        reasons.append("context parallelism")
    if getattr(executor, "kv_cache_transceiver", None) is not None:
        reasons.append("prefill/decode disaggregation")
    if getattr(executor, "kv_connector_manager", None) is not None:
        reasons.append("KV connector")
    if not getattr(spec_config, "is_linear_tree", True):
        reasons.append("tree drafts")
    if getattr(spec_config, "use_rejection_sampling", False):
        reasons.append(
            "use_rejection_sampling: filled-up drafts have no probabilities of their own"
        )
    return reasons


def _notes(executor: Any, spec_config: Any, ladder: tuple[int, ...], cramped: str) -> list[str]:
    notes = []
    if floor_of(spec_config) > 0:
        notes.append("K = 0 would leave the drafter stale, so the least is 1")
    if cramped:
        values = ",".join(map(str, ladder))
        notes.append(f"{cramped}: only K values of draft_len_schedule ({values}) may run")
    if getattr(executor, "speculation_gate", None) is not None:
        notes.append(
            "acceptance_rate_threshold counts filler as rejected drafts and switches speculation "
            "off for good"
        )
    return notes
