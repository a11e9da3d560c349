"""Step context of the simulated engine, as a real adapter would build it."""

from __future__ import annotations

import numpy as np

from adaptive_spec.sim.engine.accepted import AcceptedDrafts
from adaptive_spec.sim.engine.decode_batch import DecodeBatch
from adaptive_spec.sim.engine.early_stop import modelled_entropy
from adaptive_spec.sim.engine.kv_pool import KvPool
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.engine.prompt_queue import PromptQueue
from adaptive_spec.step import Capability, Level, StepContext


def step_context(
    step: int,
    now: float,
    capability: Capability,
    options: EngineOptions,
    batch: DecodeBatch,
    prompts: PromptQueue,
    pool: KvPool,
    accepted: AcceptedDrafts,
) -> StepContext:
    """The context of step number `step`, which begins at `now` seconds."""
    batch_size, kmax = batch.size, options.max_draft_tokens
    # One token is kept for the bonus position, so that a chain never emits too much.
    room = possible = np.minimum(batch.left, kmax)
    if options.drafts_past_end:
        room = possible = np.full(batch_size, kmax)
    if accepted.is_tree:  # K counts nodes, most of which are never emitted
        possible = np.where(possible > 0, kmax, 0)
    available = np.minimum(possible, batch.drafted)
    if batch.any_stale:
        possible = np.where(batch.stale, 0, possible)
        available = np.where(batch.stale, 0, available)
    available = accepted.limit_to_proposed(batch, available)
    copied, match = accepted.looked_up(batch, room)  # needs no state of the drafter
    used = batch.context_total + batch_size * (pool.block_tokens - 1)
    used += prompts.blocks * pool.block_tokens
    confidence = None
    if not options.late_confidence:
        confidence = accepted.confidence(batch, batch.drafted)
    return StepContext(
        step=step,
        capability=capability,
        request_ids=batch.ids,
        slots=batch.slots,
        context_tokens=batch.context,
        draft_available=available,
        draft_possible=possible,
        engine_k=capability.uniform_values[-1] if options.level is Level.UNIFORM else kmax,
        tpot_target=batch.tpot_target,
        task=batch.task,
        temperature=batch.temperature,
        confidence=confidence,
        entropy=None if confidence is None else modelled_entropy(confidence),
        waiting=len(prompts.waiting),
        prefill_tokens=prompts.expected_tokens(options.max_batch_tokens - batch_size),
        kv_free_tokens=max(pool.tokens - used, 0),
        kv_total_tokens=pool.tokens,
        lookup_available=copied,
        lookup_match=match,
        now=now,
    )
