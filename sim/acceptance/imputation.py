"""Imputation of per-position acceptance from recorded steps.

A recorded step says what was accepted from its own first position. The positions inside it, where
a replay with another K will start steps, are imputed.

**The draft depends on the text before it only.** Then an output token either is what the drafter
proposes there or is not, and j positions into a step that accepted a < K drafts a fresh step
accepts a - j. A step that accepted all K leaves one thing open, whether its bonus token would have
been drafted too. That is drawn, once, from the hazard of draft position K + 1 as far as the
recording shows it (else from the deepest position it does show); if yes, the run goes on into
the next step's.

**Some drafters get worse with depth** (EAGLE, MTP, Medusa, trees: only their first position sees
the target's features, or the tree narrows). Where the recording's hazards fall with depth, a token
rejected deep is accepted from nearer by with the probability that the fall implies, and one
accepted near by is rejected from farther off. Each token has one difficulty u, uniform in (0, 1)
given what was recorded of it, and is accepted as draft position d if u < g(d); g is the largest
falling curve that the hazards allow within two standard errors. Hazards that rise with depth, which
come from runs in easy text, leave g flat and the first rule as it stands, unless steps of several K
show that first drafts are accepted more often at the same places (`_loss_behind_first`).

At its own K the recording is reproduced exactly. Real counterfactual lists (gsm8k
and instructcoder) recorded at K = 5 and imputed back give these mean accepted: n-gram within
1.2 % of the truth for K = 1..10; EAGLE-3 5 % low at K = 1, 3 % low at K = 2 and 3, within 2.5 % for
K = 4..10; recorded at K that change, EAGLE-3 within 2 % for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.step import FloatArray, IntArray

ENOUGH = 100
"""Observations of a draft position below which its hazard is taken from shallower ones."""

UNKNOWN, MANY = -1, 254

_NEWTON_STEPS = 20
_PRIOR = 10.0
"""Weight of taking confidence for a probability, in drafts."""


@dataclass(frozen=True, eq=False)
class RecordedSteps:
    """Decode steps of R requests, laid end to end, in order within a request. S steps in all.

    Attributes:
        verified: [S] K of each step.
        accepted: [S] 0..verified.
        emitted: [S] tokens kept, 1..accepted + 1; less than accepted + 1 where a stop cut it off.
        offsets: [R + 1] request r owns steps offsets[r]..offsets[r + 1] - 1.
        confidence: [S, D] maximum draft probability at each draft position, or None.
        proposed: [S] drafts that a drafter which looks text up has found, `MANY` where nothing but
            the step has limited them, `UNKNOWN` where it was not asked; None for other drafters.
    """

    verified: IntArray
    accepted: IntArray
    emitted: IntArray
    offsets: IntArray
    confidence: NDArray[np.float32] | None = None
    proposed: IntArray | None = None


@dataclass(frozen=True, eq=False)
class Imputed:
    """Per-position acceptance: fields as in `AcceptanceData`, and how much was drawn.

    Attributes:
        accepted: [P] uint8.
        offsets: [R + 1].
        confidence: [P, depth] float32, or None.
        open_ends: share of steps that accepted all they verified.
        proposed: [P] uint8, or None.
    """

    accepted: NDArray[np.uint8]
    offsets: IntArray
    confidence: NDArray[np.float32] | None
    open_ends: float
    proposed: NDArray[np.uint8] | None = None


def impute(steps: RecordedSteps, depth: int, random: np.random.Generator) -> Imputed:
    """Acceptance at every output position, up to `depth` drafts.

    The confidence of a draft token is the one recorded for it, whichever step drafts it; beyond
    a rejection it is what was recorded beyond that rejection, and unknown (nan) where nothing
    was: at bonus tokens after fully accepted steps, and past the recorded depth.

    Raises ValueError if no step verified a draft.
    """
    hazards, seen = observed_hazards(steps)
    falling = _falling(hazards, seen)
    beyond = _beyond(steps, hazards)
    if steps.proposed is None:
        falling[1:] = np.minimum(falling[1:], falling[0] * _loss_behind_first(steps, beyond))
    begins = np.concatenate([[0], np.cumsum(steps.emitted)])
    step_of = np.repeat(np.arange(len(steps.emitted)), steps.emitted)
    inside: IntArray = np.arange(begins[-1]) - begins[step_of]
    offsets = begins[steps.offsets].astype(np.int64)
    record_end = np.repeat(offsets[1:], np.diff(offsets))

    difficulty = _difficulty(steps, step_of, inside, beyond, falling, random)
    positions = np.arange(len(difficulty))
    accepted = np.zeros(len(difficulty), dtype=np.uint8)
    alive = np.ones(len(difficulty), dtype=bool)
    # Past the last token nothing is accepted.
    padded = np.concatenate([difficulty, np.ones(depth)])
    for draft in range(depth):
        limit = falling[min(draft, len(falling) - 1)]
        alive &= (padded[draft : draft + len(alive)] < limit) & (positions + draft < record_end)
        accepted += alive
    confidence = None
    if steps.confidence is not None:
        confidence = _confidence(steps.confidence, accepted, step_of, inside, record_end, depth)
    open_ends = float((steps.accepted == steps.verified).mean())
    proposed = _proposed(steps, step_of, inside, accepted, depth, random)
    return Imputed(accepted, offsets, confidence, open_ends, proposed)


def _proposed(
    steps: RecordedSteps,
    step_of: IntArray,
    inside: IntArray,
    accepted: NDArray[np.uint8],
    depth: int,
    random: np.random.Generator,
) -> NDArray[np.uint8] | None:
    """[P] drafts found at every position; None for a drafter that always makes some.

    Along a copy that was found, there is what is left of it. Elsewhere something is found where a
    draft is accepted, and otherwise as often as in the steps that accepted nothing.
    """
    if steps.proposed is None:
        return None
    at_start = steps.proposed[step_of]
    left: IntArray = np.where(at_start == MANY, depth, np.minimum(at_start - inside, depth))
    vain = (steps.proposed != UNKNOWN) & (steps.accepted == 0)
    share = float((steps.proposed[vain] > 0).mean()) if vain.any() else 1.0
    drawn = (accepted > 0) | (random.random(len(accepted)) < share)
    known = (at_start != UNKNOWN) & ((inside == 0) | (left > 0))
    found: NDArray[np.uint8] = np.where(known, left, np.where(drawn, depth, 0)).astype(np.uint8)
    return found


def observed_hazards(steps: RecordedSteps) -> tuple[FloatArray, IntArray]:
    """[largest K + 1] hazard of each draft position, and the steps that verified and reached it.

    Positions seen fewer than `ENOUGH` times, and the one after the largest K, take the value of the
    deepest position before them that was seen often enough; if none was, all share one value.

    Raises ValueError if no step verified a draft.
    """
    deepest = int(steps.verified.max())
    if deepest < 1:
        raise ValueError("no step verified a draft")
    seen = np.zeros(deepest + 1, dtype=np.int64)
    kept = np.zeros(deepest + 1, dtype=np.int64)
    for position in range(deepest):
        reached = (steps.verified > position) & (steps.accepted >= position)
        seen[position] = np.count_nonzero(reached)
        kept[position] = np.count_nonzero(reached & (steps.accepted > position))
    hazards = np.full(deepest + 1, kept.sum() / seen.sum())
    for position in range(deepest + 1):
        if seen[position] >= ENOUGH:
            hazards[position] = kept[position] / seen[position]
        elif position and seen[:position].max() >= ENOUGH:
            hazards[position] = hazards[position - 1]
    return hazards, seen


def _falling(hazards: FloatArray, seen: IntArray) -> FloatArray:
    """[positions] g: never rises, and falls only as far as the hazards surely do."""
    inside = np.clip(hazards, 1e-6, 1 - 1e-6)
    slack = 2 * np.sqrt(inside * (1 - inside) / np.maximum(seen, 1))
    falling = inside.copy()
    for position in range(1, len(falling)):
        sure = inside[position] + slack[position] if seen[position] >= ENOUGH else 1.0
        falling[position] = min(falling[position - 1], sure)
    return falling


def _beyond(steps: RecordedSteps, hazards: FloatArray) -> FloatArray:
    """[S] probability that one more draft than was verified would have been accepted.

    By its confidence, where that is known: drafts are left out because theirs is low, so the
    hazards of those that were verified say too much. A drafter that has found nothing would not
    have drafted it; where it was not asked, it would have as often as elsewhere.
    """
    verified, accepted = steps.verified, steps.accepted
    found: FloatArray = hazards[np.minimum(verified, len(hazards) - 1)]
    if steps.proposed is not None:
        known = steps.proposed != UNKNOWN
        share = float((steps.proposed[known] > 0).mean()) if known.any() else 1.0
        # Behind the last draft the text has grown: something else may match.
        found = np.where(steps.proposed > accepted, found, share * found)
        return np.where(steps.proposed == 0, 0.0, found)
    if steps.confidence is None:
        return found
    places = np.arange(steps.confidence.shape[1])
    known = np.isfinite(steps.confidence)
    shown = np.clip(np.where(known, steps.confidence, 0.5), 1e-3, 1 - 1e-3).astype(np.float64)
    logits = np.log(shown / (1 - shown))
    tried = known & (places < np.minimum(verified, accepted + 1)[:, None])
    chances = _calibrated(logits, tried, (places < accepted[:, None])[tried])
    ended = accepted == verified
    for position in places:
        here = np.flatnonzero(ended & (verified == position))
        left_out = here[known[here, position]]
        found[left_out] = chances[left_out, position]
        reached = (verified > position) & (accepted >= position)
        if position < len(hazards) and len(here) > len(left_out):
            total = np.count_nonzero(reached & (accepted > position)) + found[left_out].sum()
            count = np.count_nonzero(reached) + len(left_out)
            if count >= ENOUGH:
                found[here[~known[here, position]]] = total / count
    return found


def _calibrated(
    logits: FloatArray, tried: NDArray[np.bool_], accepted: NDArray[np.bool_]
) -> FloatArray:
    """[S, D] probabilities by a logistic regression on logits of confidence.

    A straight line, because drafts that were left out have lower ones than all that were tried.
    """
    shown = np.stack([np.ones(len(accepted)), logits[tried]], axis=1)
    as_shown = np.array([0.0, 1.0])
    line = as_shown.copy()
    for _ in range(_NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-shown @ line))
        weighed = shown * (chance * (1 - chance))[:, None]
        gradient = shown.T @ (accepted - chance) - _PRIOR * (line - as_shown)
        step = np.linalg.solve(shown.T @ weighed + _PRIOR * np.eye(2), gradient)
        line = line + np.clip(step, -1.0, 1.0)  # a whole step can leave what has a solution
    calibrated: FloatArray = 1 / (1 + np.exp(-line[0] - line[1] * logits))
    return calibrated


def _loss_behind_first(steps: RecordedSteps, beyond: FloatArray) -> float:
    """Acceptance of later drafts over that of first drafts at the same place, at most 1.

    Rounds get to a later draft in easy text, which hides that it is worse. So take steps of K = k
    that accepted all k, as one more draft would have been with rate h: the next step's first draft
    is accepted with rate F. Where steps of a larger K accepted k and then rejected, the next one's
    is accepted with rate R. Hence F = h f + (1 - h) R, with f the rate of first drafts at places
    where rounds of a larger K that accept k + 1 draft on, accepted with rate h2.
    """
    verified, accepted = steps.verified, steps.accepted
    goes_on = np.append(verified[1:] > 0, False)
    goes_on[steps.offsets[1:] - 1] = False
    next_accepted = np.append(accepted[1:], 0) > 0
    later = first = 0.0
    for k in range(int(verified.max()) - 1):
        ended = goes_on & (accepted == k)
        full, rejected = ended & (verified == k), ended & (verified > k)
        deeper = (verified > k + 1) & (accepted > k)
        fewest = min(np.count_nonzero(each) for each in (full, rejected, deeper))
        if fewest < ENOUGH:
            continue
        chance = float(beyond[full].mean())
        follows = next_accepted[full].mean() - (1 - chance) * next_accepted[rejected].mean()
        later += fewest * float((accepted[deeper] > k + 1).mean())
        first += fewest * float(follows) / max(chance, 1e-6)
    return min(later / first, 1.0) if later and first > 0 else 1.0


def _difficulty(
    steps: RecordedSteps,
    step_of: IntArray,
    inside: IntArray,
    beyond: FloatArray,
    falling: FloatArray,
    random: np.random.Generator,
) -> FloatArray:
    """[P] u of each token, drawn given what was recorded of it."""
    limit = falling[np.minimum(inside, len(falling) - 1)]
    accepted = inside < steps.accepted[step_of]
    unseen = inside >= steps.verified[step_of]
    draws = random.random((2, len(inside)))
    accepted |= unseen & (draws[0] < beyond[step_of])
    return np.where(accepted, draws[1] * limit, limit + draws[1] * (1 - limit))


def _confidence(
    recorded: NDArray[np.float32],
    accepted: NDArray[np.uint8],
    step_of: IntArray,
    inside: IntArray,
    record_end: IntArray,
    depth: int,
) -> NDArray[np.float32]:
    """[P, depth] recorded confidence of the tokens that a step from each position drafts."""
    drafted = recorded.shape[1]
    confidence = np.full((len(inside), depth), np.nan, dtype=np.float32)
    start = np.arange(len(inside))
    for draft in range(depth):
        on_text = np.minimum(draft, accepted.astype(np.int64))
        token = start + on_text
        there = token < record_end
        token = np.where(there, token, start)
        column = inside[token] + draft - on_text
        there &= column < drafted
        confidence[there, draft] = recorded[step_of[token[there]], column[there]]
    return confidence
