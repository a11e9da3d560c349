"""Features of a step, and what a device is believed to take for them before anything was timed.

A step of B requests, N verified tokens and D passes of the drafter has the features

    x = [1, the part of N in each segment between knots, B, context tokens, prompt tokens, passes,
         passes x B, any draft, any draft x context tokens, ragged x V, whole tiles of N]

and takes x'c units. The prior of c is a roofline whose knee, bends, tiles and parts may all be
wrong by `SHARE` of a step.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_spec.policies.kernels import Kernel, Matrix, Vector
from adaptive_spec.step import FloatArray

KNEE = 160.0
"""Tokens up to which a pass is bound by reading 16-bit weights (roofline of the mean)."""
OTHER_KNEES = (96.0, 256.0)
"""Tokens of other knees that the prior holds possible (8-bit weights, slow memory)."""
KNOTS = np.array([1.0, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024])
"""Tokens between which verify time is linear."""
TILE = 128.0
"""Tokens of a tile of the matrix products: an A100 takes as long for a part of one."""
SHARE = 0.3
"""Standard deviation of each part of the prior, as a share of a step."""
BEND = 0.5
"""Standard deviation of a bend at a knot, as a share of the slope past the knee."""
PASS = 0.06
"""Seconds of a drafter's pass over those of a verify pass (prior mean)."""

_SEGMENTS = len(KNOTS)
REQUEST, CONTEXT, PREFILL, PASSES, PASS_REQUEST, ANY, ANY_CONTEXT, RAGGED, TILES = range(
    _SEGMENTS + 1, _SEGMENTS + 10
)
SIZE = _SEGMENTS + 10
_WIDTHS = np.diff(KNOTS, append=2.0 * KNOTS[-1])
_ENDS = np.append(KNOTS, 2.0 * KNOTS[-1])


def roofline(knee: float = KNEE) -> FloatArray:
    """Return [P] of a pass that takes 1 up to the knee (tokens), and 1 / knee per token past it."""
    mean = np.zeros(SIZE)
    mean[0] = 1.0
    mean[1 : _SEGMENTS + 1] = np.diff(np.maximum(_ENDS / knee, 1.0))
    mean[PREFILL], mean[PASSES] = 1.0 / knee, PASS
    return mean


def _bends() -> FloatArray:
    """[knots, P] a bend of the verify time at each knot, which all segments past it share."""
    rises = np.zeros((_SEGMENTS, SIZE))
    rises[:, 1 : _SEGMENTS + 1] = np.triu(np.broadcast_to(_WIDTHS, (_SEGMENTS, _SEGMENTS)))
    # Past the knee the token of a prompt is as much work as a draft.
    rises[KNOTS <= 192.0, PREFILL] = 1.0
    rises[1:] *= BEND
    return rises


_BENDS = _bends()
_KNEES = np.stack([2.0 * (roofline(knee) - roofline()) for knee in OTHER_KNEES])


def prior_covariance(batch: float, context: float, kmax: int, penalty: float) -> FloatArray:
    """Return S [P, P]: each part of a step of these sizes may be wrong by `SHARE` of the step."""
    tokens, passes = min(batch * (1.0 + 0.5 * kmax), KNEE), 0.5 * kmax
    covariance = _KNEES.T @ _KNEES
    covariance[0, 0] += 1.0
    rises = _BENDS / tokens
    covariance += rises.T @ rises
    rest = np.arange(REQUEST, SIZE)
    sizes = np.array(
        [
            batch,
            3.0 * max(context, 1.0),
            3.0 * tokens,
            passes,
            passes * batch,
            # Drafts are tokens first: else the part "any draft" takes what the segments would.
            10.0,
            10.0 * max(context, 1.0),
            SHARE / (penalty + 1e-9),
            SHARE / (BEND * TILE / KNEE),
        ]
    )
    covariance[rest, rest] += sizes**-2.0
    return SHARE**2 * covariance


@Kernel
def tokens_with(nodes: Vector, batch: float, drafts: Vector) -> Vector:
    """Return the tokens [n] that B requests verify with so many drafts [n] in all.

    Args:
        nodes: [Kmax + 1] tokens of one request at each K, where drafts are trees of that depth;
            linear in between. Empty: chains.
        batch: B.
        drafts: [n] sum of the K of all requests.
    """
    found = np.empty(len(drafts))
    for n in range(len(drafts)):
        found[n] = batch + drafts[n]
        if len(nodes):
            depth = min(drafts[n] / batch, len(nodes) - 1.0)
            below = int(min(depth, len(nodes) - 2.0))
            found[n] = nodes[below] + (depth - below) * (nodes[below + 1] - nodes[below])
            found[n] *= batch
    return found


@Kernel
def padded_size(buckets: Vector, tokens: float) -> float:
    """Return the tokens that run: the captured size of `buckets` [n], if one is large enough."""
    place = np.searchsorted(buckets, tokens)
    return float(buckets[place]) if place < len(buckets) else tokens


@Kernel
def fill_rows(
    x: Matrix,
    buckets: Vector,
    batch: float,
    tokens: Vector,
    context: float,
    passes: Vector,
    prefill: float,
) -> None:
    """Overwrite x [A, P] with the features of steps that are not ragged.

    Args:
        x: [A, P]
        buckets: [n] captured sizes, ascending.
        batch: B.
        tokens: [A] N.
        context: tokens.
        passes: [A] D.
        prefill: prompt tokens.
    """
    last = len(KNOTS) - 1
    for a in range(len(x)):
        run = padded_size(buckets, tokens[a])
        x[a, 0] = 1.0
        for s in range(last):
            x[a, 1 + s] = min(max((run - KNOTS[s]) / _WIDTHS[s], 0.0), 1.0)
        x[a, 1 + last] = max((run - KNOTS[last]) / _WIDTHS[last], 0.0)
        some = 1.0 if tokens[a] > batch else 0.0
        x[a, REQUEST], x[a, CONTEXT], x[a, PREFILL] = batch, context, prefill
        x[a, PASSES], x[a, PASS_REQUEST] = passes[a], passes[a] * batch
        x[a, ANY], x[a, ANY_CONTEXT], x[a, RAGGED] = some, some * context, 0.0
        x[a, TILES] = math.floor((run - 1.0) / TILE)


@Kernel
def step_features(
    buckets: Vector,
    batch: float,
    tokens: float,
    context: float,
    passes: float,
    prefill: float,
) -> Vector:
    """Return the features [P] of one step; see `fill_rows`."""
    x = np.empty((1, SIZE))
    fill_rows(x, buckets, batch, np.array([tokens]), context, np.array([passes]), prefill)
    row: FloatArray = x[0]
    return row


@Kernel
def step_curves(
    c: Vector,
    tokens: Vector,
    passes: Vector,
    batch: float,
    context: float,
    scale: float,
    besides: float,
) -> tuple[Vector, Vector]:
    """Return verify time [n] of ascending tokens [n] that run, and draft time [Kmax + 1].

    The first of the tokens are those without drafts. See `StepTimes.curves`.
    """
    verify, last = np.empty(len(tokens)), len(KNOTS) - 1
    segment, height = 0, 0.0  # of the time at the segment's begin
    common = c[0] + c[REQUEST] * batch + c[CONTEXT] * context
    for n in range(len(tokens)):
        while segment < last and tokens[n] >= KNOTS[segment + 1]:
            height += c[1 + segment]
            segment += 1
        inside = max((tokens[n] - KNOTS[segment]) / _WIDTHS[segment], 0.0)
        time = common + height + c[1 + segment] * inside
        time += c[TILES] * math.floor((tokens[n] - 1.0) / TILE)
        if n:
            time += c[ANY] + c[ANY_CONTEXT] * context
        verify[n] = scale * max(time, 0.05) + besides
    return verify, passes * (scale * (c[PASSES] + c[PASS_REQUEST] * batch))


def padded(buckets: FloatArray, tokens: FloatArray) -> FloatArray:
    """Return the tokens [A] of the captured sizes that run."""
    return np.array([padded_size(buckets, each) for each in tokens])
