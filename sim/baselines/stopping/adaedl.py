"""Baseline: AdaEDL, which stops drafting by an entropy bound against an adaptive threshold.

Rule: drafting ends after the first position with 1 - sqrt(gamma H) < lambda. After each round, with
r the accepted share of the round's drafts,

    A <- b1 A + (1 - b1) r
    lambda' = lambda + e if A <= alpha else lambda - e
    lambda <- b2 lambda + (1 - b2) lambda'

Source: arXiv 2410.18351. The constants b1 = 0.5, b2 = 0.9, alpha = 0.9, e = 0.01, and initially A =
0 and lambda = 0.5, are those of `AdaEDLScheduler` in samsungsds-research-paper/DSDE; it lowers
lambda only if all drafts were accepted, has gamma = 0.1 and stops the batch with the first request.
Granularity: L2, lambda per request. Without the entropy signal: the engine's own K.

Faults kept: lambda moves by at most 0.001 a round, so that most requests end before it moves far;
the target is a share of accepted drafts (0.9), not time; load is ignored; never off.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.per_request import floats
from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.stopping.live_stopping import (
    LiveStoppingPolicy,
    StoppingOptions,
    Stops,
)
from adaptive_spec.step import FinishedStep, FloatArray, IntArray, Level

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class AdaEdlOptions(StoppingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `adaedl`."""

    gamma: Annotated[float, msgspec.Meta(gt=0)] = 0.2
    """Weight of the entropy (nats) in the bound."""
    threshold: Share = 0.5
    """lambda of a new request."""
    target: Share = 0.9
    """alpha, target share of accepted drafts."""
    step: Annotated[float, msgspec.Meta(ge=0)] = 0.01
    """e, distance of lambda' from lambda."""
    acceptance_memory: Share = 0.5
    """b1, weight of the past in the running share of accepted drafts."""
    threshold_memory: Share = 0.9
    """b2, weight of the past in lambda."""


class AdaEdlPolicy(LiveStoppingPolicy):
    """Policy that drafts while the entropy bound on acceptance exceeds an adaptive threshold."""

    name: ClassVar[str] = "adaedl"
    summary: ClassVar[str] = "drafts until the entropy exceeds an adaptive threshold, AdaEDL"
    Options: ClassVar[type[msgspec.Struct]] = AdaEdlOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="AdaEDL, arXiv 2410.18351; constants of samsungsds-research-paper/DSDE "
        "vllm/spec_decode/dynamic_scheduler.py",
        granularity=Level.FULL,
        faults="the threshold hardly moves within a request; aims at a share of accepted drafts; "
        "ignores load; never off",
    )
    needs_entropy = True

    def __init__(self, options: AdaEdlOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._options = options
        self._accepted = floats(0.0)
        self._threshold = floats(options.threshold)
        self._frozen = floats(options.threshold)

    def stops(self, slots: IntArray, confidence: FloatArray, entropy: FloatArray) -> Stops:
        """Stop after a position with 1 - sqrt(gamma H) < lambda."""
        bound = 1.0 - np.sqrt(self._options.gamma * np.maximum(entropy, 0.0))
        low = bound < self._frozen[slots][:, None]  # nan is not low
        return Stops(np.ones_like(low), ~low)

    def freeze(self, slots: IntArray) -> None:
        """Fix lambda for the next drafts."""
        self._frozen[slots] = self._threshold[slots]

    def observe(self, step: FinishedStep) -> None:
        """Update lambda of the requests that verified drafts."""
        outcome = step.outcome
        drafted = outcome.verified > 0
        slots = outcome.slots[drafted]
        if not slots.size:
            return
        options = self._options
        share = outcome.accepted[drafted] / outcome.verified[drafted]
        memory = options.acceptance_memory
        running = memory * self._accepted[slots] + (1.0 - memory) * share
        self._accepted[slots] = running
        threshold = self._threshold[slots]
        wanted = threshold + np.where(running <= options.target, options.step, -options.step)
        memory = options.threshold_memory
        self._threshold[slots] = memory * threshold + (1.0 - memory) * wanted

    def forget(self, slots: IntArray) -> None:
        """Reset lambda of these slots."""
        self._accepted.reset(slots)
        self._threshold.reset(slots)
        self._frozen.reset(slots)
