"""Control that a built scheduler allows: algorithm, K, shadow only, or nothing at all.

Read from SGLang's Scheduler when it is built and its loop has not started; `rules` says why.
"""

from __future__ import annotations

import os
from typing import Any

from adaptive_spec.adapters.sglang.rules import RULES, Setup
from adaptive_spec.adapters.sglang.steered_params import SteeredParams
from adaptive_spec.engines.rules import INERT, SHADOW, reasons
from adaptive_spec.engines.support import Support
from adaptive_spec.step import Capability, Level

SKIP_VARIABLE = "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"
_SAMPLES = "speculative_use_rejection_sampling"


def detect(scheduler: Any, params: SteeredParams | None, reason: str = "") -> Support:
    """Return the control that a built scheduler allows.

    Args:
        scheduler: SGLang's Scheduler.
        params: ours, where its worker asks them; None where it has no adaptive parameters.
        reason: why a worker that could have had them has none, if that is known.
    """
    ladder = () if params is None else tuple(params.candidate_steps)
    setup = Setup(scheduler.server_args, scheduler, ladder, reason)
    for inert in reasons(RULES, INERT, setup):
        return _inert(setup.name, inert)
    if params is None or ladder[-1] < 1:
        return _inert(setup.name, "the only candidate is K = 0: see --speculative-adaptive-config")
    stateless = setup.algorithm("is_ngram")
    skips = os.environ.get(SKIP_VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")
    warm = not stateless and not skips
    return Support(
        capability=Capability(
            level=Level.UNIFORM,
            max_draft_tokens=ladder[-1],
            ladder=ladder,
            tree_nodes=params.tree_nodes,
            off_pass=warm,
            cold_off=not stateless and skips,
            sampled_drafts=not stateless and drafts_are_sampled(scheduler.server_args),
        ),
        method=setup.name,
        scheduling="overlap" if scheduler.enable_overlap else "sync",
        shadow=tuple(reasons(RULES, SHADOW, setup)),
        notes=tuple(_notes(setup, params, skips=skips and not stateless)),
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
    return next(reasons(RULES, INERT, Setup(server_args)), "")


def _notes(setup: Setup, params: SteeredParams, *, skips: bool) -> list[str]:
    notes = []
    if setup.disaggregated == "decode":
        notes.append("acceptance is low where a prompt comes without the drafter's KV")
    if 0 not in params.candidate_steps:
        notes.append("K = 0 is no candidate, so speculation is never off")
    if skips:
        notes.append(f"{SKIP_VARIABLE} leaves the drafter's state stale after K = 0")
    if any(getattr(setup.scheduler, name, False) for name in ("is_hybrid_swa", "is_hybrid_ssm")):
        notes.append("free KV of hybrid pools is not read")
    return notes


def _inert(name: str, reason: str) -> Support:
    return Support(capability=None, method=name, inert=reason)
