"""The verdict on the drafts of one pass."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import kernel, sum_in_order
from adaptive_spec.step import BoolArray, FloatArray


def _judge_loop(
    position: int,
    hazard: FloatArray,
    mean_hazard: FloatArray,
    draft_prices: FloatArray,
    pass_price: float,
    drafting: BoolArray,
    survival: FloatArray,
    extending: BoolArray,
) -> tuple[BoolArray, BoolArray]:
    kmax, batch = mean_hazard.shape
    admitted = np.empty(batch, np.bool_)
    going = np.empty(batch, np.bool_)
    exploring = False
    for i in range(batch):
        survival[i] *= mean_hazard[position, i] if np.isnan(hazard[i]) else hazard[i]
        worth = survival[i] >= draft_prices[position]
        admitted[i] = drafting[i] and (worth or extending[i])
        going[i] = drafting[i] and worth
        extending[i] = extending[i] and worth
        exploring = exploring or (extending[i] and going[i])
    if exploring:
        return admitted, going
    after = np.ones(batch, np.float64)
    total = 0.0
    for j in range(position + 1, kmax):
        gain = 0.0
        price = draft_prices[j]
        for i in range(batch):
            if going[i]:
                after[i] *= mean_hazard[j, i]
                chance = survival[i] * after[i]
                gain += max(chance - price, 0.0)
        total += gain - pass_price
        if total > 0.0:
            return admitted, going
    going[:] = False
    return admitted, going


@kernel(
    "Tuple((boolean[:], boolean[:]))(int64, float64[:], float64[:, :], float64[:],"
    " float64, boolean[:], float64[:], boolean[:])",
    _judge_loop,
)
def judge(
    position: int,
    hazard: FloatArray,
    mean_hazard: FloatArray,
    draft_prices: FloatArray,
    pass_price: float,
    drafting: BoolArray,
    survival: FloatArray,
    extending: BoolArray,
) -> tuple[BoolArray, BoolArray]:
    """Which drafts of a pass are kept, and who is drafted for in the next one.

    See `adaptive_spec.policies.planning.confidence_admission`, also for why.

    Args:
        position: j, from 0.
        hazard: [B] of its draft, given what it has shown; nan where nothing was shown.
        mean_hazard: [Kmax, B] of drafts of which nothing is known yet.
        draft_prices: [Kmax] of a verified draft, in tokens.
        pass_price: of a pass, in tokens.
        drafting: [B] was drafted for in this pass.
        survival: [B] of the draft before, weighted; updated in place.
        extending: [B] keeps one draft more than is worth it; updated in place.

    Returns who keeps the draft [B], and who goes on [B].
    """
    survival *= np.where(np.isnan(hazard), mean_hazard[position], hazard)
    worth = survival >= draft_prices[position]
    admitted = drafting & (worth | extending)
    going = drafting & worth
    extending &= worth
    if not (extending & going).any():
        after = mean_hazard[position + 1 :, going]
        price = draft_prices[position + 1 :, None]
        chance = survival[going] * np.cumprod(after, axis=0)
        gain = sum_in_order(np.maximum(chance - price, 0.0).T)
        if not (np.cumsum(gain - pass_price) > 0.0).any():
            going[:] = False
    return admitted, going
