"""Rows of the comparison of simulator and real engine."""

from __future__ import annotations

import msgspec


class SimulatedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One arm at one load: tokens per second in the steady part, and steps."""

    device: str
    clients: int
    arm: str
    real: float
    simulated: float
    real_steps: int
    simulated_steps: int

    @property
    def error(self) -> float:
        """Relative error of the simulator."""
        return self.simulated / self.real - 1.0
