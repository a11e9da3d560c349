"""Capability of a TensorRT-LLM executor, read between its construction and the start of its loop.

Only the one-engine path (EAGLE3, MTP, draft model inside the target's forward pass) resolves K per
iteration. `rules` says what is only watched or left alone.
"""

from __future__ import annotations

from typing import Any

from adaptive_spec.adapters.tensorrt_llm.ladder import (
    floor_of,
    is_dynamic,
    keeps_drafter_warm,
    lacks_room,
    ladder_of,
)
from adaptive_spec.adapters.tensorrt_llm.rules import RULES, Setup
from adaptive_spec.engines.rules import INERT, SHADOW, reasons
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
    setup = Setup(executor, spec_config)
    for inert in reasons(RULES, INERT, setup):
        return Support(capability=None, method=setup.method, inert=inert)
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
        method=setup.method,
        scheduling="plain" if executor.disable_overlap_scheduler else "overlap",
        shadow=tuple(reasons(RULES, SHADOW, setup)),
        notes=tuple(_notes(executor, spec_config, ladder, cramped)),
    )


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
