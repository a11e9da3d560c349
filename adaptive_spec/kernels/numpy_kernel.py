"""The inner loops in numpy: the definition that the compiled ones must equal.

Arrays over positions and requests are position-major, ``[Kmax, B]``: sums over requests or over
positions then run in one fixed order, and ravelling gives the order in which ties are broken
(shallower position first, then request order).
"""

from __future__ import annotations

import numpy as np

from adaptive_spec.kernels.numpy_signal import follow_means as follow_means
from adaptive_spec.kernels.numpy_signal import judge as judge
from adaptive_spec.kernels.numpy_signal import passed_over as passed_over
from adaptive_spec.kernels.numpy_signal import pool as pool
from adaptive_spec.kernels.numpy_signal import round_means as round_means
from adaptive_spec.kernels.numpy_signal import sum_in_order
from adaptive_spec.kernels.numpy_signal import tell as tell
from adaptive_spec.kernels.numpy_signal import weigh as weigh
from adaptive_spec.step import FloatArray, IntArray


def admit(
    values: FloatArray,
    possible: IntArray,
    available: IntArray,
    base: float,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    depths: IntArray,
) -> tuple[IntArray, int, float, float]:
    """Choose the next draft depth D and this step's K_i; see `adaptive_spec.planning.planner`.

    Args:
        values: [Kmax, B] weighted survival w_i s_ij, not increasing in j.
        possible: [B] drafts of each request that the next step could use.
        available: [B] drafts of each request that can be verified now.
        base: sum of the weights, the value of the bonus tokens.
        verify_seconds: [M + 1] verify time with m admitted drafts, M >= sum of either limit.
        draft_seconds: [Kmax + 1] draft time at depth D.
        depths: candidate depths, ascending.

    Returns K_i `[B]`, D, the value of the admitted drafts, and the best ratio of the next step.
    D maximises the ratio over drafts that are possible; K_i maximises it over drafts that are
    available, given the time of drafting to D.
    """
    kmax, batch = values.shape
    position = np.arange(kmax)[:, None]
    eligible = (position < np.maximum(possible, available)).ravel()
    flat = values.ravel()
    # 32 bits order the values (ties at that resolution go by position); 64 bits are summed.
    keys = np.where(eligible, -flat, np.inf).astype(np.float32)
    order = np.argsort(keys, kind="stable")[: int(np.count_nonzero(eligible))]
    depth_of, request_of = np.divmod(order, max(batch, 1))
    ordered = flat[order]

    usable = depth_of < possible[request_of]
    value, at = ordered[usable], depth_of[usable]
    best, best_depth = -np.inf, int(depths[0])
    for depth in depths.tolist():
        score, _, _ = _best_prefix(value[at < depth], base, verify_seconds, draft_seconds[depth])
        if score > best:
            best, best_depth = score, depth

    usable = depth_of < available[request_of]
    _, admitted, total = _best_prefix(
        ordered[usable], base, verify_seconds, draft_seconds[best_depth]
    )
    chosen = request_of[usable][:admitted]
    return np.bincount(chosen, minlength=batch).astype(np.int64), best_depth, total, float(best)


def _best_prefix(
    value: FloatArray, base: float, verify_seconds: FloatArray, draft_seconds: float
) -> tuple[float, int, float]:
    """Best ratio over prefixes; length and value of the shortest prefix that reaches it."""
    total = np.empty(len(value) + 1)
    total[0] = 0.0
    np.cumsum(value, out=total[1:])
    score = (base + total) / (verify_seconds[: len(total)] + draft_seconds)
    admitted = int(np.argmax(score))
    return float(score[admitted]), admitted, float(total[admitted])


def learn(
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    position_gradient: FloatArray,
    position_information: FloatArray,
    position_count: IntArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> None:
    """One step's update of the request effects, and the sums for the position effects.

    Position j of request i was observed iff ``j < min(accepted + 1, verified)`` (0-based), and
    accepted iff ``j < accepted``. Residuals are y - h with the hazards `[Kmax, B]` given.
    Updates in place: `position_gradient`, `position_information` `[Kmax]` (overwritten),
    `position_count` `[Kmax]` (times seen, added to), `request_effect`, `request_information`
    `[B]`. Requests that verified nothing are untouched.
    """
    kmax = len(hazard)
    position = np.arange(kmax)[:, None]
    seen = position < np.minimum(accepted + 1, verified)
    residual = np.where(seen, (position < accepted) - hazard, 0.0)
    information = np.where(seen, np.maximum(hazard * (1.0 - hazard), 0.02), 0.0)
    position_gradient[:] = sum_in_order(residual.T)
    position_information[:] = sum_in_order(information.T)
    position_count += np.count_nonzero(seen, axis=1)
    touched = verified > 0
    total = sum_in_order(information)
    gradient = sum_in_order(residual)
    new_information = request_information * discount + total
    precision = 1.0 / prior_variance + new_information
    effect = request_effect + gradient / precision
    # The discounted evidence no longer supports the whole effect: it shrinks towards the prior.
    effect = effect * (1.0 - 0.5 * (1.0 - discount) / (1.0 + prior_variance * new_information))
    request_effect[:] = np.where(touched, effect, request_effect)
    request_information[:] = np.where(touched, new_information, request_information)


def follow(
    hazard: FloatArray,
    verified: IntArray,
    accepted: IntArray,
    odds_ratio: FloatArray,
    request_effect: FloatArray,
    request_information: FloatArray,
    prior_variance: float,
    discount: float,
) -> float:
    """The update of request effects as in `learn`, of effects that the hazards were not made from.

    Theirs are of odds `odds_ratio` [B] times as large. Updates `request_effect` and
    `request_information` `[B]` in place. Returns by how much their squared residuals are smaller
    than those of the hazards `[Kmax, B]` given, summed over what was observed.
    """
    position = np.arange(len(hazard))[:, None]
    seen = position < np.minimum(accepted + 1, verified)
    own = hazard * odds_ratio
    own = own / (1.0 - hazard + own)
    outcome = position < accepted
    theirs = np.where(seen, outcome - hazard, 0.0)
    residual = np.where(seen, outcome - own, 0.0)
    better = sum_in_order(theirs * theirs - residual * residual)
    touched = verified > 0
    total = sum_in_order(np.where(seen, np.maximum(own * (1.0 - own), 0.02), 0.0))
    new_information = request_information * discount + total
    effect = request_effect + sum_in_order(residual) / (1.0 / prior_variance + new_information)
    effect = effect * (1.0 - 0.5 * (1.0 - discount) / (1.0 + prior_variance * new_information))
    request_effect[:] = np.where(touched, effect, request_effect)
    request_information[:] = np.where(touched, new_information, request_information)
    return float(np.cumsum(better)[-1]) if better.size else 0.0


def absorb(
    gram: FloatArray, moment: FloatArray, features: FloatArray, target: float, weight: float
) -> None:
    """Add a weighted observation to the normal equations, in place.

    `gram` [P, P] += w x x', `moment` [P] += w x y; a negative weight takes one out again.
    """
    weighted = weight * features
    gram += weighted[:, None] * features
    moment += weighted * target


def descend(
    gram: FloatArray, moment: FloatArray, coefficients: FloatArray, least: FloatArray
) -> None:
    """One sweep of coordinate descent on min c'Gc - 2m'c subject to c >= `least`, in place.

    `gram` [P, P] is symmetric positive semi-definite; `moment`, `coefficients` and `least` are [P].
    """
    gradient = moment.copy()
    for p in np.flatnonzero(coefficients):
        gradient -= coefficients[p] * gram[p]
    for p in range(len(coefficients)):
        curvature = gram[p, p]
        if curvature <= 0.0:
            continue
        updated = max(least[p], coefficients[p] + gradient[p] / curvature)
        if updated != coefficients[p]:
            gradient -= (updated - coefficients[p]) * gram[p]
            coefficients[p] = updated


def hazards(logits: FloatArray, low: float, high: float) -> None:
    """Logits [Kmax, B] become hazards, 1 / (1 + exp(-x)) held within low..high, in place."""
    np.negative(logits, out=logits)
    np.exp(logits, out=logits)
    logits += 1.0
    np.reciprocal(logits, out=logits)
    np.maximum(logits, low, out=logits)
    np.minimum(logits, high, out=logits)


def survive(hazard: FloatArray) -> None:
    """Hazards [Kmax, B] become survivals, the product up to each position, in place."""
    np.cumprod(hazard, axis=0, out=hazard)


def tally(hazard: FloatArray, verified: IntArray, accepted: IntArray, counts: FloatArray) -> None:
    """Add a step's observed drafts to histograms of their predicted hazards, in place.

    `counts` [Kmax, bins, 3]: by position and bin of the hazard `[Kmax, B]` how many drafts were
    rejected, how many accepted, and the sum of their hazards. Observed is what `learn` observes;
    what is no probability is left out.
    """
    kmax, bins, _ = counts.shape
    position = np.arange(kmax)[:, None]
    seen = (position < np.minimum(accepted + 1, verified)) & (hazard >= 0.0) & (hazard <= 1.0)
    predicted = hazard[seen]
    place = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    place += (position * bins + np.zeros_like(accepted))[seen]
    hit = (position < accepted)[seen]
    flat = counts.reshape(kmax * bins, 3)
    flat[:, 0] += np.bincount(place[~hit], minlength=len(flat))
    flat[:, 1] += np.bincount(place[hit], minlength=len(flat))
    np.add.at(flat[:, 2], place, predicted)


def worth(survival: FloatArray, seconds: FloatArray) -> FloatArray:
    """What a token of each request [B] counts for; see `adaptive_spec.planning.throughput_weights`.

    Args:
        survival: [Kmax, B] s_ij.
        seconds: [Kmax + 1] of a step with K drafts for each request.
    """
    tokens = np.ones((len(survival) + 1, survival.shape[1]))
    tokens[1:] = survival
    np.cumsum(tokens, axis=0, out=tokens)
    pace = tokens / seconds[:, None]
    best = np.argmax(pace, axis=0)[None]
    emitted = np.take_along_axis(tokens, best, axis=0)[0]
    result: FloatArray = 1.0 / np.take_along_axis(pace, best, axis=0)[0]
    if result.size:
        result *= np.cumsum(emitted)[-1] / np.cumsum(result * emitted)[-1]
    return result


def step_curve(
    tokens: FloatArray,
    knots: FloatArray,
    heights: FloatArray,
    last_slope: float,
    fixed: float,
    any_draft: float,
) -> FloatArray:
    """Verify time [M + 1] with m drafts: a piecewise linear curve over the tokens, and constants.

    Args:
        tokens: [M + 1] ascending, from the first knot on.
        knots: [S] ascending.
        heights: [S] of the curve at the knots.
        last_slope: per token past the last knot.
        fixed: seconds on top.
        any_draft: more seconds from one draft on.
    """
    slopes = np.append(np.diff(heights) / np.diff(knots), last_slope)
    segment = np.searchsorted(knots, tokens, side="right") - 1
    curve: FloatArray = slopes[segment] * (tokens - knots[segment]) + heights[segment]
    curve += fixed
    curve[1:] += any_draft
    return np.maximum(curve, 1e-6, out=curve)
