"""No drafter at all: true no speculation, the reference of every comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import Drafter


class NoDrafter(Drafter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Proposes nothing, costs nothing, takes no memory."""

    name: ClassVar[str] = "none"
    source: ClassVar[str] = "autoregressive decoding"
    off_pass: ClassVar[bool] = False
    stale_after_cold: ClassVar[bool] = False
    depth_follows: ClassVar[bool] = False

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """The same records, without a draft."""
        nothing = np.zeros(len(data.accepted), dtype=np.uint8)
        return replace(data, proposed=nothing, tree_sizes=None, confidence=None)
