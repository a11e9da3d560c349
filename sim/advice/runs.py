"""Outcomes behind an advice: each (world, set-up, load) once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from adaptive_spec.sim.advice.setups import SetUp
from adaptive_spec.sim.advice.worlds import Outcome, World

Run = tuple[str, SetUp, int]
"""Name of a world, set-up and clients."""


class Runs:
    """Outcomes by world, set-up and load.

    Args:
        worlds: by name.
    """

    def __init__(self, worlds: Mapping[str, World]) -> None:
        self._worlds = worlds
        self._outcomes: dict[tuple[str, str, int], Outcome] = {}

    def run_missing(self, wanted: Iterable[Run]) -> None:
        """Simulate these runs; those simulated before are skipped."""
        for world, set_up, clients in wanted:
            key = world, set_up.name, clients
            if key not in self._outcomes:
                self._outcomes[key] = self._worlds[world].run(set_up, clients)

    def outcome(self, world: str, set_up: str, clients: int) -> Outcome:
        """Return the outcome of a run that was made, by the name of its set-up."""
        return self._outcomes[world, set_up, clients]

    def speed(
        self, world: str, set_up: str, loads: Sequence[int], tokens: Sequence[float]
    ) -> float:
        """Return the tokens per second of a set-up that has so many to emit at each load."""
        speeds = [self.outcome(world, set_up, clients).tokens_per_second for clients in loads]
        # The work is what is given; a slower set-up stays at a load for longer.
        seconds = sum(each / speed for each, speed in zip(tokens, speeds, strict=True))
        return sum(tokens) / seconds
