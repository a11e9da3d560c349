"""Baseline: SVIP, which stops drafting at a position of high entropy.

Rule: acceptance is at least 1 - sqrt(c H) for a draft distribution of entropy H; drafting ends
after the first position with sqrt(c H) > h. That position's draft is kept.

Source: arXiv 2411.18462; c = 0.15 and h = 0.3 as in vanilla-sd/eval_specbench.py of
Geralt-Targaryen/SVIP, which drafts at most 40. Granularity: L2; the original serves one request.
Without the entropy signal: the engine's own K.

Faults kept: c and h are constants; load and acceptance are ignored; never off (the first draft is
always made and verified).
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.sim.baselines.stopping.live_stopping import (
    LiveStoppingPolicy,
    StoppingOptions,
    Stops,
)
from adaptive_spec.step import FloatArray, IntArray, Level


class SvipOptions(StoppingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `svip`."""

    c: Annotated[float, msgspec.Meta(gt=0)] = 0.15
    """Weight of the entropy (nats) in the bound."""
    h: Annotated[float, msgspec.Meta(ge=0)] = 0.3
    """Threshold of sqrt(c H) above which drafting stops."""


class SvipPolicy(LiveStoppingPolicy):
    """Policy that drafts while the entropy is low."""

    name: ClassVar[str] = "svip"
    summary: ClassVar[str] = "drafts until the drafter's entropy is high, SVIP"
    Options: ClassVar[type[msgspec.Struct]] = SvipOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="SVIP, arXiv 2411.18462; Geralt-Targaryen/SVIP vanilla-sd/eval_specbench.py",
        granularity=Level.FULL,
        faults="constants c and h; ignores load and acceptance; never off",
    )
    needs_entropy = True

    def __init__(self, options: SvipOptions, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._c, self._h = options.c, options.h

    def stops(self, slots: IntArray, confidence: FloatArray, entropy: FloatArray) -> Stops:
        """Stop after a position with sqrt(c H) > h."""
        high = np.sqrt(self._c * np.maximum(entropy, 0.0)) > self._h  # nan is not high
        return Stops(np.ones_like(high), ~high)
