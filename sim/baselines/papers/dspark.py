"""Baseline: DSpark's scheduler in its production form.

Rule: confidences c_ij, calibrated by a temperature per position (`TemperatureScaling`), give
survivals S_ij = c_i1 ... c_ij. The number of verified drafts is

    B* = argmax over m of tau(m) * SPS(B + m),    tau(m) = B + sum of the m largest survivals,

with SPS(n) the steps per second of a batch of n tokens and survivals two rounds old, 1 for younger
requests; the live survivals select the B* drafts. The search is global; the paper's algorithm 1,
for live survivals, stops at the first fall instead.

Source: arXiv 2607.05147, algorithm 1 and its production form; granularity L1. Without a confidence
signal: the engine's own K. An engine with one K per batch gets the best K by the old survivals.

Stand-ins: the original's c comes from a head trained to predict 1 - total variation distance; here
c is the drafter's maximum probability. SPS is learned online, starting from the option `profile`.

Faults kept: the full block is always drafted; two rounds of lag; new requests are expected to
accept all drafts; never off. A temperature scales confidences but cannot shift them: where all of
them are too high, as a synthetic confidence is in a replay, the rule verifies too many drafts.
"""

from __future__ import annotations

import math
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.parts.drafts import log_odds, observed, sigmoid
from adaptive_spec.sim.baselines.parts.verification_budget import (
    BudgetedVerification,
    BudgetOptions,
)
from adaptive_spec.step import Capability, FinishedStep, FloatArray, IntArray, Level, StepContext

_BINS = 16
_WIDEST = 8.0
"""Inner edge of the outermost bins (log-odds)."""
_DECAY = 0.999
_SHRINKAGE = 64.0
_REFIT_STEPS = 100
_GRID: FloatArray = np.geomspace(0.1, 10.0, 49)


class TemperatureScaling:
    """Sequential temperature scaling, online: a confidence temperature per draft position.

        a_j = sigmoid(x_j / T_j),    x_j = log-odds of the confidence at position j

    Position by position, 16 bins of x hold discounted counts of judged drafts (accepted ones, and
    the first rejected one), their accepted ones and their mean x. T_j is the temperature of a
    logarithmic grid of 49 with the least expected calibration error over the bins. With little
    data, log T_j shrinks towards the fit of all positions together, with weight n / (n + 64).

    Source: DSpark, arXiv 2607.05147 (offline, left to right), in the online form of vLLM's branch
    file dspark/online_sts.py: bins, decay 0.999 per step, grid and shrinkage. The range of the grid
    (0.1 to 10) is SGLang's (benchmark/dspark_sts_fit.py, which fits offline); the refit every 100
    steps is ours.

    Args:
        positions: Kmax.
    """

    def __init__(self, positions: int) -> None:
        self.temperature: FloatArray = np.ones(positions)
        self._count: FloatArray = np.zeros((positions, _BINS))
        self._taken: FloatArray = np.zeros((positions, _BINS))
        self._sum: FloatArray = np.zeros((positions, _BINS))
        self._steps = 0

    def calibrated(self, log_odds: FloatArray) -> FloatArray:
        """Return [B, Kmax] acceptance; nan stays nan."""
        return sigmoid(log_odds / self.temperature)

    def learn(self, log_odds: FloatArray, verified: IntArray, accepted: IntArray) -> None:
        """Add a step's judged drafts: log-odds [B, Kmax], nan where unknown; the others [B]."""
        positions = len(self.temperature)
        seen, taken = observed(verified, accepted, positions)
        seen &= ~np.isnan(log_odds)
        edges = np.linspace(-_WIDEST, _WIDEST, _BINS - 1)
        place = np.searchsorted(edges, log_odds) + np.arange(positions) * _BINS
        place, shown, hit = place[seen], log_odds[seen], taken[seen]
        for sums, weights in (
            (self._count, np.ones(len(place))),
            (self._taken, hit.astype(np.float64)),
            (self._sum, shown),
        ):
            sums *= _DECAY
            sums += np.bincount(place, weights, positions * _BINS).reshape(positions, _BINS)
        self._steps += 1
        if self._steps >= _REFIT_STEPS:
            self._steps = 0
            self._refit()

    def _refit(self) -> None:
        pooled = _best(self._count.sum(axis=0), self._taken.sum(axis=0), self._sum.sum(axis=0))
        for position in range(len(self.temperature)):
            seen = float(self._count[position].sum())
            own = _best(self._count[position], self._taken[position], self._sum[position])
            weight = seen / (seen + _SHRINKAGE)
            mixed = weight * math.log(own) + (1.0 - weight) * math.log(pooled)
            self.temperature[position] = math.exp(mixed)


def _best(count: FloatArray, taken: FloatArray, total: FloatArray) -> float:
    """Return the grid's temperature with the least calibration error over bins; 1 without data."""
    if count.sum() <= 0.0:
        return 1.0
    mean = total / np.maximum(count, 1e-12)
    expected = sigmoid(mean / _GRID[:, None])
    error = np.abs(count * expected - taken).sum(axis=1)
    return float(_GRID[np.argmin(error)])


class DSparkOptions(BudgetOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `dspark`."""

    calibrate: bool = True
    """Fit temperatures online; otherwise use raw confidences."""


class DSparkPolicy(BudgetedVerification):
    """Policy of calibrated confidences, a budget two rounds old, and live ranking within it."""

    name: ClassVar[str] = "dspark"
    summary: ClassVar[str] = "verifies the drafts that pay, by calibrated confidence, DSpark"
    Options: ClassVar[type[msgspec.Struct]] = DSparkOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="DSpark, arXiv 2607.05147, algorithm 1, production form",
        granularity=Level.VERIFY,
        faults="always drafts in full; budget two rounds old; new requests are expected to accept "
        "all; never off; maximum probability for the confidence head",
    )
    lag = 2

    def __init__(self, options: DSparkOptions, *, seed: int = 0) -> None:
        del seed
        super().__init__(options.profile)
        self._calibrate = options.calibrate

    def begin(self, capability: Capability) -> None:
        """Build the calibration."""
        super().begin(capability)
        self._scaling = TemperatureScaling(capability.max_draft_tokens)

    def calibrated(self, context: StepContext, confidence: FloatArray) -> FloatArray:
        """Return confidences at their position's temperature."""
        if not self._calibrate:
            return confidence
        return self._scaling.calibrated(log_odds(confidence))

    def learn(self, step: FinishedStep) -> None:
        """Learn from the step's confidences and outcomes."""
        confidence, outcome = step.context.confidence, step.outcome
        if self._calibrate and confidence is not None:
            self._scaling.learn(log_odds(confidence), outcome.verified, outcome.accepted)
