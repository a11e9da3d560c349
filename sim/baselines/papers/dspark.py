"""Baseline: DSpark's scheduler in its production form.

Rule: confidences c_ij, calibrated by a temperature per position (`temperature_scaling`), give
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

from typing import ClassVar

import msgspec

from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.papers.temperature_scaling import TemperatureScaling
from adaptive_spec.sim.baselines.parts.drafts import log_odds
from adaptive_spec.sim.baselines.parts.verification_budget import (
    BudgetedVerification,
    BudgetOptions,
)
from adaptive_spec.step import Capability, FinishedStep, FloatArray, Level, StepContext


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
