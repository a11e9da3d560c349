"""What the drafter's confidence is used for, and what is learned of it; part of `numpy_kernel`."""

from __future__ import annotations

import numpy as np

from adaptive_spec.step import BoolArray, FloatArray, IntArray


def sum_in_order(rows: FloatArray) -> FloatArray:
    """Sum over the first axis, first row first (numpy's own sum may pair rows)."""
    if len(rows) == 0:
        return np.zeros(rows.shape[1])
    # cumsum is sequential by definition.
    result: FloatArray = np.cumsum(rows, axis=0)[-1]
    return result


def judge(
    position: int,
    odds_against: FloatArray,
    low: float,
    high: float,
    mean_hazard: FloatArray,
    told: FloatArray,
    draft_prices: FloatArray,
    pass_price: float,
    drafting: BoolArray,
    survival: FloatArray,
    extending: BoolArray,
) -> tuple[BoolArray, BoolArray]:
    """Which drafts of a pass are kept, and who is drafted for in the next one.

    See `adaptive_spec.policies.goodput.confidence_admission`, also for why.

    Args:
        position: j, from 0.
        odds_against: [B] that its draft is accepted if those before are; nan where nothing was
            shown.
        low: least hazard.
        high: most.
        mean_hazard: [Kmax, B] of drafts of which nothing is known yet.
        told: [Kmax] `OptionValue.told`.
        draft_prices: [Kmax] of a verified draft, in tokens.
        pass_price: of a pass, in tokens.
        drafting: [B] was drafted for in this pass.
        survival: [B] of the draft before, weighted; updated in place.
        extending: [B] keeps one draft more than is worth it; updated in place.

    Returns who keeps the draft [B], and who goes on [B].
    """
    hazard = 1.0 / (1.0 + odds_against)
    hazard = np.minimum(np.maximum(hazard, low), high)
    survival *= np.where(np.isnan(hazard), mean_hazard[position], hazard)
    worth = survival >= draft_prices[position]
    admitted = drafting & (worth | extending)
    going = drafting & worth
    extending &= worth
    if not (extending & going).any():
        after = mean_hazard[position + 1 :, going]
        price = draft_prices[position + 1 :, None]
        chance = survival[going] * np.cumprod(after, axis=0)
        won = np.maximum(chance - price, 0.0)
        # Of a perfect signal it would be this.
        best = chance * np.maximum(1.0 - price, 0.0)
        gain = sum_in_order((won + told[position + 1 :, None] * (best - won)).T)
        if not (np.cumsum(gain - pass_price) > 0.0).any():
            going[:] = False
    return admitted, going


def passed_over(
    signal: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    hazard: FloatArray,
    of_history: FloatArray,
) -> tuple[FloatArray, FloatArray, bool]:
    """What history may learn of drafts that were made and not verified.

    They count by the chance that they would have been reached: 1 for the next after the last
    verified one if all of these were accepted, and less by each hazard further on.

    Args:
        signal: [Kmax, B] what the drafts had shown; nan where none was made.
        verified: [B] K_i.
        accepted: [B]
        hazard: [Kmax, B] by what they had shown.
        of_history: [Kmax, B] without it.

    Returns [Kmax, B] by how much the first says more than the second, by weight; the second's
    h (1 - h), by weight; and whether anything counts.
    """
    beyond = np.arange(len(signal))[:, None] >= verified
    reached = np.ones_like(hazard)
    np.cumprod(np.where(beyond, hazard, 1.0)[:-1], axis=0, out=reached[1:])
    weight = np.where(beyond & (accepted >= verified) & ~np.isnan(signal), reached, 0.0)
    return (
        weight * (hazard - of_history),
        weight * of_history * (1.0 - of_history),
        bool(weight.any()),
    )


def weigh(
    values: FloatArray,
    residual: FloatArray,
    information: FloatArray,
    classes: IntArray,
    weight: FloatArray,
    evidence: FloatArray,
    prior_evidence: float,
    evidence_limit: float,
    most: float,
) -> None:
    """One step's update of weights w >= 0 in logits w x, for each row and class of requests.

    Args:
        values: [R, B] x; nan counts for nothing.
        residual: [R, B] y - h.
        information: [R, B] h (1 - h).
        classes: [B] column of each request, or [1] of all.
        weight: [R, C] w; updated in place.
        evidence: [R, C] Fisher information; updated in place.
        prior_evidence: of w = 0.
        evidence_limit: of what was there before.
        most: largest w.
    """
    known = np.where(np.isnan(values), 0.0, values)
    pull, shown = known * residual, known * known * information
    np.minimum(evidence, evidence_limit, out=evidence)
    for column in range(weight.shape[1]):
        here = classes == column
        evidence[:, column] += sum_in_order(np.where(here, shown, 0.0).T)
        gradient = sum_in_order(np.where(here, pull, 0.0).T)
        found = weight[:, column] + gradient / (evidence[:, column] + prior_evidence)
        weight[:, column] = np.minimum(np.maximum(found, 0.0), most)


def pool(
    own: FloatArray, evidence: FloatArray, weight: FloatArray, prior_evidence: float, pooling: float
) -> None:
    """What a position has shown itself, drawn towards what its class and both have shown.

    Args:
        own: [Kmax, C] w of each position and class by itself.
        evidence: [Kmax, C] its Fisher information.
        weight: [Kmax, C] the outcome.
        prior_evidence: that none of them is more than 0.
        pooling: Fisher information by which others count.
    """
    shown, gathered = sum_in_order(evidence * own), sum_in_order(evidence)
    both = float(np.cumsum(shown)[-1]) / (float(np.cumsum(gathered)[-1]) + prior_evidence)
    pooled = (shown + pooling * both) / (gathered + pooling)
    weight[:] = (evidence * own + pooling * pooled) / (evidence + pooling)


def follow_means(
    values: FloatArray, classes: IntArray, mean: FloatArray, count: FloatArray, memory: float
) -> None:
    """Take a step's values up in the running means of each row and class of requests.

    Args:
        values: [R, B]; nan counts for nothing.
        classes: [B] column of each request, or [1] of all.
        mean: [R, C] updated in place.
        count: [R, C] values so far, `memory` at most; updated in place.
        memory: values after which the mean forgets.
    """
    known = ~np.isnan(values)
    values = np.where(known, values, 0.0)
    for column in range(mean.shape[1]):
        here = known & (classes == column)
        seen = np.count_nonzero(here, axis=1)
        total = sum_in_order(np.where(here, values, 0.0).T)
        count[:, column] = np.minimum(count[:, column] + seen, memory)
        mean[:, column] += total / np.maximum(count[:, column], 1.0)


def round_means(signal: FloatArray) -> FloatArray:
    """Mean [B] of what the drafts of a round have shown [Kmax, B]; nan where nothing is known."""
    known = ~np.isnan(signal)
    drafts = np.count_nonzero(known, axis=0)
    total = sum_in_order(np.where(known, signal, 0.0))
    return np.where(drafts > 0, total / np.maximum(drafts, 1), np.nan)


def tell(
    survival: FloatArray,
    given: FloatArray,
    known: BoolArray,
    prices: FloatArray,
    count: FloatArray,
    saved: FloatArray,
    span: FloatArray,
    memory: float,
) -> None:
    """Take up what a step's drafts were worth by being left out; see `OptionValue.learn`.

    Updates `count` (drafts), `saved` (what was gained) and `span` (what a perfect signal would
    gain), [Kmax] each, in place. `prices` is [Kmax], the other arrays are [Kmax, B].
    """
    price = prices[:, None]
    least = np.maximum(price - survival, 0.0)
    gained = np.where(known, np.maximum(price - given, 0.0) - least, 0.0)
    most = np.where(known, np.maximum(price * (1.0 - survival) - least, 0.0), 0.0)
    held = np.minimum(1.0, memory / np.maximum(count, 1.0))
    count[:] = held * count + np.count_nonzero(known, axis=1)
    saved[:] = held * saved + sum_in_order(gained.T)
    span[:] = held * span + sum_in_order(most.T)
