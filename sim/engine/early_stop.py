"""Drafting pass by pass, where a policy may stop it early.

A drafter that stops saves the passes that no request of the batch wants any more; while one still
does, the others' slots run along, as in an engine whose drafter batch keeps its size.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from adaptive_spec.controller.controller import Controller
from adaptive_spec.sim.engine.accepted import AcceptedDrafts
from adaptive_spec.sim.engine.decode_batch import DecodeBatch
from adaptive_spec.step import DraftPass, FloatArray, IntArray

_TAIL = 8.0
"""Tokens that share the probability which the likeliest one leaves."""


def drafts_made(
    controller: Controller,
    step: int,
    batch: DecodeBatch,
    accepted: AcceptedDrafts,
    emitted: IntArray,
    depth: int,
) -> tuple[IntArray, int]:
    """[B] drafts made for the next step, and the passes that took: the policy may stop early.

    Requests whose prompt ends in this step are drafted for in every pass there is.

    Args:
        controller: of the policy.
        step: number of the step.
        batch: the requests, B.
        accepted: what the drafter shows of its confidence.
        emitted: [B] tokens of this step, after which drafting begins.
        depth: the most passes.
    """
    size = len(batch.slots)
    possible = accepted.has_confidence and depth and size
    if not (possible and controller.capability.stops_drafting and controller.stops_drafting):
        controller.drafted_whole()
        return _all(size, depth), depth
    confidence = accepted.confidence_at(batch.cursor_after(emitted))
    return _until_stopped(controller, step, batch, confidence, depth)


@lru_cache(maxsize=1024)
def _all(batch_size: int, depth: int) -> IntArray:
    """[B] the same depth for all, read-only."""
    return np.broadcast_to(np.int64(depth), batch_size)


def _until_stopped(
    controller: Controller, step: int, batch: DecodeBatch, confidence: FloatArray, depth: int
) -> tuple[IntArray, int]:
    """Run up to `depth` passes; [B] drafts kept, and the passes that ran.

    Args:
        controller: asks its policy after each pass.
        step: number of the step.
        batch: the requests, B.
        confidence: [B, Kmax] maximum draft probability at each position.
        depth: the most passes, >= 1.
    """
    entropy = modelled_entropy(confidence)
    drafting = np.ones(len(batch.slots), dtype=np.bool_)
    drafted: IntArray = np.zeros(len(batch.slots), dtype=np.int64)
    for position in range(depth):
        verdict = controller.after_draft_pass(
            DraftPass(
                step=step,
                position=position,
                slots=batch.slots,
                drafting=drafting,
                confidence=confidence[:, : position + 1],
                entropy=entropy[:, : position + 1],
            )
        )
        drafted += verdict.admitted
        drafting = verdict.drafting
        if not drafting.any():
            return drafted, position + 1
    return drafted, depth


def modelled_entropy(confidence: FloatArray) -> FloatArray:
    """Entropy in nats of a distribution with this maximum and eight equal other tokens.

    Traces record the maximum; this is the entropy that goes with it for policies that use entropy.
    """
    top = np.clip(confidence, 1e-6, 1.0 - 1e-6)
    entropy: FloatArray = -top * np.log(top) - (1.0 - top) * np.log((1.0 - top) / _TAIL)
    return entropy
