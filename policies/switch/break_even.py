"""What speculation could bring at a load: the acceptance at which it breaks even, and the gain.

With h the probability that a first draft is accepted and d_j the hazards of deeper positions, a
step that verifies the m shallowest drafts of B alike requests emits B + h V(m) tokens,

    V(m) = number of first positions + sum over deeper ones of d_2 .. d_j,

in T(m) seconds; a step without speculation emits B in T_off. So goodput exceeds that of K = 0 by
the share g from

    h(g) = min over m of ((1 + g) T(m) / T_off - 1) B / V(m)

on. h(0) is the break-even. The minimum over all m includes every uniform K and every captured
graph that is only partly filled.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np

from adaptive_spec.policies.switch.drafter_state import SavingForecast
from adaptive_spec.step import FloatArray

_GOOD_HAZARD = 0.8
"""First hazard of a good drafter (EAGLE, arXiv 2401.15077, table 2)."""
_HIGHEST_HAZARD = 0.97
_LEAST_GAIN = 0.02


class Prospect(msgspec.Struct, frozen=True):
    """Speculation at one load, as seen from K = 0.

    Attributes:
        gain: g, the relative gain in goodput if drafts were accepted as of a good drafter, at most
            the gain asked about; 0 if even that would not pay.
        break_even: h(0), first hazard at which speculation pays for itself; may exceed 1.
        worthwhile: h(g), first hazard that brings this gain.
    """

    gain: float
    break_even: float
    worthwhile: float

    @property
    def hopeless(self) -> bool:
        """No acceptance would bring anything worth looking for."""
        return self.gain < _LEAST_GAIN


class SpeculationForecast(SavingForecast, Protocol):
    """The part of a step's forecast that the mode machine reads; computed when read."""

    @property
    def off_seconds(self) -> float:
        """Duration of the step at the cheapest K = 0, prompts left out."""
        ...

    @property
    def warm_seconds(self) -> float:
        """Seconds added by the pass that keeps the drafter's state current; 0 without a state."""
        ...

    @property
    def advantage(self) -> float:
        """Goodput of the best plan over that of the cheapest K = 0, minus 1."""
        ...

    def prospect(self) -> Prospect:
        """Gain and break-even of speculation at this load."""
        ...

    @property
    def timed_drafts(self) -> int:
        """Steps with drafts that were timed at this load."""
        ...

    def log_gain_of_none(self) -> tuple[float, float]:
        """Ln goodput of no speculation over that of the best K >= 1, and its standard error."""
        ...


def prospect(
    batch_size: int,
    verify_seconds: FloatArray,
    draft_seconds: FloatArray,
    off_seconds: float,
    deeper_hazards: FloatArray,
    *,
    expected_gain: float = 0.3,
) -> Prospect:
    """Return gain and break-even of speculation for a batch of equal requests.

    Args:
        batch_size: B >= 1.
        verify_seconds: [B * Kmax + 1] verify time with m drafts.
        draft_seconds: [Kmax + 1] draft time by depth.
        off_seconds: T_off, duration of a step without speculation.
        deeper_hazards: [Kmax - 1] d_2, d_3, ...
        expected_gain: the gain to look for.
    """
    kmax = len(draft_seconds) - 1
    continues = np.ones(kmax)
    np.cumprod(deeper_hazards, out=continues[1:])
    value = np.cumsum(np.repeat(continues, batch_size))
    seconds = verify_seconds[1:] + np.repeat(draft_seconds[1:], batch_size)
    relative = seconds / off_seconds
    good = float(np.max((1.0 + _GOOD_HAZARD * value / batch_size) / relative)) - 1.0
    gain = min(max(good, 0.0), expected_gain)
    scale = batch_size / value
    return Prospect(
        gain,
        float(np.min((relative - 1.0) * scale)),
        min(float(np.min(((1.0 + gain) * relative - 1.0) * scale)), _HIGHEST_HAZARD),
    )
