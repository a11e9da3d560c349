"""Control that a built scheduler allows: algorithm, K, shadow only, or nothing at all.

Read from SGLang's Scheduler when it is built and its loop has not started. The rules and their
reasons are in PATCHES.md.
"""

from __future__ import annotations

import os
from typing import Any

from adaptive_spec.adapters.sglang.steered_params import SteeredParams
from adaptive_spec.engines.support import Support
from adaptive_spec.step import Capability, Level

SKIP_VARIABLE = "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"
NGRAM_NAME = "ADAPTIVE_NGRAM"
"""Our registered algorithm, for ``--speculative-algorithm``."""

_SAMPLES = "speculative_use_rejection_sampling"
_OWN_PLANNER = "plans its own verify lengths and is left alone"
_FIXED = "has a fixed K in SGLang"
_NO_PIPELINE = "not with pipeline parallelism"


def detect(scheduler: Any, params: SteeredParams | None, reason: str = "") -> Support:
    """Return the control that a built scheduler allows.

    Args:
        scheduler: SGLang's Scheduler.
        params: ours, where its worker asks them; None where it has no adaptive parameters.
        reason: why a worker that could have had them has none, if that is known.
    """
    algorithm = scheduler.spec_algorithm
    name = str(getattr(algorithm, "name", algorithm))
    if algorithm.is_none():
        return _inert(name, "no speculation is configured: add --speculative-algorithm")
    if _truth(algorithm, "is_dspark"):
        return _inert(name, f"DSPARK {_OWN_PLANNER}")
    if _disaggregated(scheduler.server_args) == "prefill":
        return _inert(name, "a prefill instance generates one token per request")
    if params is None:
        return _inert(name, reason or _why_fixed(scheduler, algorithm, name))
    if _ranks_in_a_pipeline(scheduler.server_args):
        return _inert(name, _NO_PIPELINE)
    ladder = tuple(params.candidate_steps)
    if ladder[-1] < 1:
        return _inert(name, "the only candidate is K = 0: see --speculative-adaptive-config")
    stateless = _truth(algorithm, "is_ngram")
    skips = os.environ.get(SKIP_VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")
    warm = not stateless and not skips
    return Support(
        capability=Capability(
            level=Level.UNIFORM,
            max_draft_tokens=ladder[-1],
            ladder=ladder,
            off_pass=warm,
            cold_off=not stateless and skips,
            sampled_drafts=not stateless and drafts_are_sampled(scheduler.server_args),
        ),
        method=name,
        scheduling="overlap" if scheduler.enable_overlap else "sync",
        shadow=tuple(_shadow_reasons(scheduler, ladder, stateless)),
        notes=tuple(_notes(scheduler, params, skips=skips and not stateless)),
    )


def drafts_are_sampled(server_args: Any) -> bool:
    """Return whether drafts are sampled; otherwise SGLang drafts the likeliest token.

    Also where nobody asked: SGLang switches it on with block verification, and on ROCm.
    """
    if getattr(server_args, _SAMPLES, False):
        return True
    try:
        from sglang.srt.runtime_context import get_spec

        return bool(getattr(get_spec(), _SAMPLES, False))
    except ImportError:  # older versions: only the argument
        return False
    except Exception:  # not resolved yet: assume sampled drafts, the stricter case
        return True


def unsupported_here(server_args: Any) -> str:
    """Return why K may not change with these arguments, if SGLang does not check that itself."""
    for key, text in (
        ("enable_dp_attention", "attention DP"),
        ("enable_two_batch_overlap", "two-batch overlap"),
        ("enable_pdmux", "pdmux"),
        ("enable_multi_layer_eagle", "multi-layer EAGLE"),
    ):
        if getattr(server_args, key, False):
            return f"not with {text}"
    if int(getattr(server_args, "attn_dp_size", 1) or 1) > 1:
        return "not with attention DP"
    return _NO_PIPELINE if _ranks_in_a_pipeline(server_args) else ""


def _ranks_in_a_pipeline(server_args: Any) -> bool:
    return int(getattr(server_args, "pp_size", 1) or 1) > 1


def _why_fixed(scheduler: Any, algorithm: Any, name: str) -> str:
    if name == NGRAM_NAME:
        return unsupported_here(scheduler.server_args) or "its buffers could not be made"
    if _truth(algorithm, "is_ngram"):
        return f"NGRAM {_FIXED}: use --speculative-algorithm {NGRAM_NAME}"
    if not _truth(algorithm, "is_eagle") or _truth(algorithm, "is_frozen_kv_mtp"):
        return f"{name} {_FIXED}"
    from sglang.srt.speculative.adaptive_spec_params import adaptive_unsupported_reason

    refused = adaptive_unsupported_reason(scheduler.server_args)
    if refused:
        return f"SGLang has disabled --speculative-adaptive: {refused}"
    return f"{name} needs --speculative-adaptive"


def _disaggregated(server_args: Any) -> str:
    """``prefill`` or ``decode`` of an instance that does one of them only."""
    return str(getattr(server_args, "disaggregation_mode", None) or "null")


def _shadow_reasons(scheduler: Any, ladder: tuple[int, ...], ngram: bool) -> list[str]:
    reasons = []
    launched = getattr(scheduler.server_args, "speculative_num_steps", None)
    sized = hasattr(scheduler.spec_algorithm, "resolve_max_speculative_num_draft_tokens")
    if not ngram and not sized and launched is not None and ladder[-1] > int(launched):
        # This SGLang sizes buffers for the K it was launched with (sglang#30549, #35275).
        reasons.append(f"candidate K = {ladder[-1]} above --speculative-num-steps {launched}")
    if _disaggregated(scheduler.server_args) == "decode":
        reasons.append("a decode instance, whose prompts may come without the drafter's KV")
    if ngram and not getattr(scheduler.server_args, "disable_cuda_graph", False):
        device = str(getattr(scheduler, "device", None) or scheduler.server_args.device)
        if not device.startswith("cpu"):
            reasons.append("NGRAM with captured graphs of one width (--disable-cuda-graph)")
    return reasons


def _notes(scheduler: Any, params: SteeredParams, *, skips: bool) -> list[str]:
    notes = []
    if 0 not in params.candidate_steps:
        notes.append("K = 0 is no candidate, so speculation is never off")
    if skips:
        notes.append(f"{SKIP_VARIABLE} leaves the drafter's state stale after K = 0")
    if any(getattr(scheduler, name, False) for name in ("is_hybrid_swa", "is_hybrid_ssm")):
        notes.append("free KV of hybrid pools is not read")
    return notes


def _inert(name: str, reason: str) -> Support:
    return Support(capability=None, method=name, inert=reason)


def _truth(algorithm: Any, question: str) -> bool:
    answer = getattr(algorithm, question, None)
    return bool(answer()) if callable(answer) else False
