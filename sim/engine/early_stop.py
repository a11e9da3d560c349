"""Drafting pass by pass, for baselines that end the draft loop early.

No server has such a loop: it needs drafter and rule in one process, and on a GPU a synchronisation
per pass. Rules published for it (DISCO, AdaEDL, SVIP, AdaSpec) run in it here, and only here
(`EngineOptions.stops_drafting`). A drafter that stops saves the passes that no request of the batch
wants any more; while one still does, the others' slots run along.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, runtime_checkable

import msgspec
import numpy as np

from adaptive_spec.sim.engine.accepted import AcceptedDrafts
from adaptive_spec.sim.engine.decode_batch import DecodeBatch
from adaptive_spec.step import BoolArray, FloatArray, IntArray

_TAIL = 8.0
"""Tokens that share the probability which the likeliest one leaves."""


class DraftPass(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One running pass of the drafter, before its token takes effect.

    Attributes:
        position: j, the draft position of this pass, from 0.
        slots: [B] the requests.
        drafting: [B] requests that are still being drafted for.
        confidence: [B, j + 1] maximum probability of the draft distribution at each position so far
            (nan where unknown).
        entropy: [B, j + 1] entropy of that distribution in nats.
    """

    position: int
    slots: IntArray
    drafting: BoolArray
    confidence: FloatArray
    entropy: FloatArray


class DraftVerdict(msgspec.Struct, frozen=True, eq=False):
    """Decision after a draft pass.

    Attributes:
        admitted: [B] keep the draft of this position for verification.
        drafting: [B] draft for the request in the next pass; only where it is admitted.
    """

    admitted: BoolArray
    drafting: BoolArray


@runtime_checkable
class DraftStopper(Protocol):
    """A rule that is asked after each pass of the drafter."""

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        """Decide on this position and the next pass. Called after each pass, position 0 first."""
        ...


def drafts_made(
    stopper: DraftStopper | None,
    batch: DecodeBatch,
    accepted: AcceptedDrafts,
    emitted: IntArray,
    depth: int,
) -> tuple[IntArray, int]:
    """[B] drafts made for the next step, and the passes that took.

    Requests whose prompt ends in this step are drafted for in every pass there is.

    Args:
        stopper: the rule that may stop drafting early; None: all passes run.
        batch: the requests, B.
        accepted: what the drafter shows of its confidence.
        emitted: [B] tokens of this step, after which drafting begins.
        depth: the most passes.
    """
    size = len(batch.slots)
    if stopper is None or not (accepted.has_confidence and depth and size):
        return _all(size, depth), depth
    confidence = accepted.confidence_at(batch.cursor_after(emitted))
    return _until_stopped(stopper, batch, confidence, depth)


@lru_cache(maxsize=1024)
def _all(batch_size: int, depth: int) -> IntArray:
    """[B] the same depth for all, read-only."""
    return np.broadcast_to(np.int64(depth), batch_size)


def _until_stopped(
    stopper: DraftStopper, batch: DecodeBatch, confidence: FloatArray, depth: int
) -> tuple[IntArray, int]:
    """Run up to `depth` passes; [B] drafts kept, and the passes that ran.

    Args:
        stopper: is asked after each pass.
        batch: the requests, B.
        confidence: [B, Kmax] maximum draft probability at each position.
        depth: the most passes, >= 1.
    """
    entropy = modelled_entropy(confidence)
    drafting = np.ones(len(batch.slots), dtype=np.bool_)
    drafted: IntArray = np.zeros(len(batch.slots), dtype=np.int64)
    for position in range(depth):
        verdict = stopper.after_draft_pass(
            DraftPass(
                position=position,
                slots=batch.slots,
                drafting=drafting,
                confidence=confidence[:, : position + 1],
                entropy=entropy[:, : position + 1],
            )
        )
        admitted = drafting & verdict.admitted
        drafted += admitted
        drafting = admitted & verdict.drafting
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
