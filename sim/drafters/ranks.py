"""Ranks of the target's tokens among a drafter's candidates: the input of token trees.

Chain data says how long the drafter's first choices stay right. A tree also needs to know, where
the first choice is wrong, at which rank the right token stands, and how drafting goes on behind it.

* The rank of a missed token: P(rank > r | rank > 1) = r^-b. This power law fits the published
  top-k success rates of a draft model within .01 (see `DRAFT_MODEL_TAIL`).
* Behind a missed token, drafting goes on as a step that starts right after it: the data tell what
  that step accepts. A real drafter extends its own features there rather than the target's, so
  this is slightly optimistic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.step import FloatArray

NEVER = 255
"""A rank, or a number of nodes, that is never reached."""


@dataclass(frozen=True)
class RankTail:
    """Ranks of missed tokens: P(rank > r | rank > 1) = r^-exponent, r = 1, 2, ..."""

    exponent: float
    source: str

    def shares(self, width: int) -> FloatArray:
        """[width - 1] P(rank = r | rank > 1) for r = 2..width."""
        beyond = np.arange(1.0, width + 1.0) ** -self.exponent
        shares: FloatArray = beyond[:-1] - beyond[1:]
        return shares

    def draw(self, uniform: FloatArray) -> NDArray[np.uint8]:
        """Ranks counted from 0, so >= 1, for uniform draws in [0, 1); `NEVER` if out of reach."""
        rank = np.ceil((1.0 - uniform) ** (-1.0 / self.exponent)) - 1.0
        ranks: NDArray[np.uint8] = np.clip(rank, 1, NEVER).astype(np.uint8)
        return ranks


DRAFT_MODEL_TAIL = RankTail(
    0.53,
    "SpecInfer, arXiv 2305.09781, table 1: greedy decoding, LLaMA-7B with LLaMA-68M, mean of five "
    "prompt sets: .664 .768 .810 .842 .856 within the first 1..5 choices",
)
EAGLE_TAIL = RankTail(
    0.78,
    "first choice .79 on MT-Bench (EAGLE, arXiv 2401.15077, table 2, 0-alpha, Vicuna-7B) and "
    ".929 within the first 4 (first level of EAGLE's tree in the Spec-Bench answers published in "
    "yukiki-jc/Spec-Bench @ 3b73a28c)",
)


@dataclass(frozen=True)
class TruePath:
    """The target's own continuation of a step, level by level, as the drafter sees it.

    Attributes:
        hit: [P, depth] the drafter's first choice is right at this level, given the true prefix.
        known: [P, depth] the level lies inside the record, so that it can be told at all.
        start: [P, depth] position whose step predicts this level: the step's own, or the one
            right after the last missed token.
    """

    hit: NDArray[np.bool_]
    known: NDArray[np.bool_]
    start: NDArray[np.int64]


def true_path(data: AcceptanceData, depth: int) -> TruePath:
    """Follow the true tokens of every position through its misses.

    Args:
        data: of a chain.
        depth: levels; at most `data.depth`.
    """
    positions = len(data.accepted)
    ends = np.repeat(data.offsets[1:], data.lengths)
    accepted = data.accepted.astype(np.int64)
    start = np.arange(positions)
    left = accepted.copy()
    alive = np.ones(positions, dtype=np.bool_)
    hits, known, starts = [], [], []
    for level in range(depth):
        hit = alive & (left > 0)
        hits.append(hit)
        known.append(alive)
        starts.append(start)
        behind = np.arange(positions) + level + 1
        inside = behind < ends
        missed = alive & ~hit
        alive = alive & (hit | inside)
        resumed = missed & inside
        start = np.where(resumed, behind, start)
        left = np.where(resumed, accepted[np.minimum(start, positions - 1)], left - 1)
    return TruePath(np.stack(hits, 1), np.stack(known, 1), np.stack(starts, 1))


def true_ranks(path: TruePath, tail: RankTail, random: np.random.Generator) -> NDArray[np.uint8]:
    """[P, depth] rank (from 0) of the true token among the candidates behind the true prefix.

    A missed token has one rank, from whichever step it is seen. `NEVER` where a level is unknown.
    """
    positions, depth = len(path.hit), path.hit.shape[1]
    missed = tail.draw(random.random(positions))
    token = np.arange(positions)[:, None] + np.arange(depth)
    ranks = np.where(path.hit, 0, missed[np.minimum(token, positions - 1)])
    ranks[~path.known] = NEVER
    result: NDArray[np.uint8] = ranks.astype(np.uint8)
    return result
