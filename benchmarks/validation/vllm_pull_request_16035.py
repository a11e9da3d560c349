"""V4: vLLM with EAGLE, one request at a time (vLLM pull request 16035, comment of 2025-04-09).

80 MT-Bench questions of 75.8 tokens, 207 tokens of output in the mean (both from the throughputs
and seconds per question given there), `max_num_seqs` 1. The page does not name the GPU; 128.64
tok/s is an H100's rate, and the same author's other runs in this series are on one.

Stated: accepted lengths (that page); step times and the drafter's passes (`h100-llama-8b`).
Fitted: `ANY_DRAFT`, on the row K = 2, which is not counted: what a step with drafts costs besides.
That version ran the drafter without CUDA graphs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from adaptive_spec.sim.hardware.registry import hardware_profile
from benchmarks.profiles import published_profile
from benchmarks.validation.arms import like_requests
from benchmarks.validation.row import Row, compared

TITLE = "vLLM pull request 16035, Llama-3-8B, EAGLE, MT-Bench, one request at a time"
BOUND = 0.10
ANY_DRAFT = 2.10e-3
"""Seconds per step with drafts, at which K = 2 comes out as published."""

_QUESTIONS = 80
_PROMPT_TOKENS = 76
_OUTPUT_TOKENS = 207
_PLAIN = 128.64
_PUBLISHED = {2: (175.49, 1.89), 4: (165.65, 2.08)}
"""K: tokens per second, accepted length."""
_FITTED_K = 2


def rows(data_folder: Path) -> list[Row]:
    """Throughput without and with drafts. The figures stand in this file."""
    del data_folder
    profile = msgspec.structs.replace(
        hardware_profile(published_profile("h100-llama-8b")), any_draft=ANY_DRAFT
    )
    arms = like_requests(profile, _QUESTIONS, _PROMPT_TOKENS, _OUTPUT_TOKENS)
    found = [
        compared(
            "V4",
            "no drafts, tok/s",
            _PLAIN,
            arms.plain().throughput_tok_s,
            bound=BOUND,
            note="nothing fitted: h100-llama-8b",
        )
    ]
    for k, (published, accepted_length) in _PUBLISHED.items():
        fitted = k == _FITTED_K
        note = f"accepted length {accepted_length:g} (stated)"
        if fitted:
            note = f"fitted on this row: {1e3 * ANY_DRAFT:.2f} ms per step with drafts; {note}"
        found.append(
            compared(
                "V4",
                f"K = {k}, tok/s",
                published,
                arms.speculating(k, accepted_length).throughput_tok_s,
                counted=not fitted,
                bound=BOUND,
                note=note,
            )
        )
    return found
