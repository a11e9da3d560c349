"""The audit of one controller: places blocks, measures, guards, and says what it has found."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec

from adaptive_spec.audit.blocks import BLOCK_STEPS, Arm, Blocks, Placed
from adaptive_spec.audit.confidence_sequence import Sequence
from adaptive_spec.audit.gain import Difference, PairedDifferences
from adaptive_spec.audit.guard import ALL, Guard, Recent
from adaptive_spec.config import Audit
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.step import Capability, StepOutcome

ERROR = 0.05
"""Error of the intervals that are shown."""


class Change(NamedTuple):
    """The guard hands back or takes over.

    Attributes:
        load: requests per step that it holds for, or ``all``.
        handed_back: the engine's own K runs from now on.
    """

    load: str
    handed_back: bool


class Gains:
    """Sequences of one arm: all loads, each class of load, and the last hour."""

    def __init__(self) -> None:
        self.all = Sequence()
        self.by_load: dict[int, Sequence] = {}
        self.hour = Recent()

    def add(self, found: Difference) -> None:
        """Add a difference."""
        self.hour.add(found)
        for sequence in (self.all, self.by_load.setdefault(found.load, Sequence())):
            sequence.add(found.value, found.weight)

    def figures(self, now: float) -> dict[str, Any]:
        """Return figures of all loads, of the last hour and by load; `now` in seconds."""
        hour = {**figures(self.hour.older), "seconds": round(max(now - self.hour.since, 0.0))}
        by_load = {load_name(load): figures(each) for load, each in sorted(self.by_load.items())}
        return {**figures(self.all), "hour": hour, "by_load": by_load}


def figures(sequence: Sequence) -> dict[str, Any]:
    """Return blocks, sums, and with enough blocks `gain`, `low` and `high` (0.1: 10 percent)."""
    values: dict[str, Any] = {"blocks": sequence.count, "sums": sequence.sums}
    if found := sequence.interval(ERROR):
        values |= zip(("gain", "low", "high"), map(math.expm1, found), strict=True)
    return values


def load_name(load: int) -> str:
    """Return the requests per step of a class of load, such as ``33-64``."""
    if load == ALL:
        return "all"
    high = 1 << load
    return f"{high // 2 + 1}-{high}" if high > 2 else f"{high}"


class Auditor:
    """Audit of one controller.

    Args:
        config: of the audit.
        capability: control options of the engine.
        seed: of the places of blocks.
    """

    def __init__(self, config: Audit, capability: Capability, seed: int) -> None:
        self._seed = seed
        self._can_stop = 0 in capability.uniform_values
        self._gains: dict[Arm, Gains] = {}
        self._proof: dict[Arm, Gains] = {}
        self._differences = PairedDifferences()
        self._guard = Guard()
        self._proving = 0.0
        """Seconds that the share is raised for; 0 while it is the configured one."""
        self._until = math.inf
        """Time at which that ends; inf before the first step with it (seconds)."""
        self._now = 0.0
        self._block = -1
        self._handed_back = False
        self._held = 0
        self._configured = config
        self._use(config, 0)

    def _use(self, config: Audit, frame: int) -> None:
        self._config = config
        # Where 0 is no K of the engine, it cannot stop drafting.
        arms = tuple(arm for arm in config.arms if arm != "none" or self._can_stop)
        usable = msgspec.structs.replace(config, arms=arms)
        self._blocks = Blocks(usable, self._seed, BLOCK_STEPS, frame)
        self._differences.void()

    def configure(self, config: Audit) -> None:
        """Use another share, other arms, or no guard; what has been measured is kept."""
        if config != self._configured or self._proving:
            self._configured, self._proving, self._until = config, 0.0, math.inf
            self._use(config, self._blocks.frame + 1)

    def prove(self, config: Audit, seconds: float) -> None:
        """Use this configuration for so many seconds, and measure their gain apart."""
        # An idle engine's clock stands still: the time begins with the next step.
        self._proving, self._until = seconds, math.inf
        self._proof = {}
        self._use(config, self._blocks.frame + 1)

    def arm(self, requests: int, now: float, *, cold: bool) -> tuple[Arm, Placed | None]:
        """Return what runs in the next step, and the step's place in or beside a block.

        Args:
            requests: decoding requests.
            now: time (seconds).
            cold: requests have lost the drafter, or the policy plans so.
        """
        self._now = now
        if self._proving:
            self._until = min(self._until, now + self._proving)
            if now >= self._until:
                self.configure(self._configured)
        placed = self._blocks.place(cold=cold)
        self._held -= 1
        # One side runs through a whole pair, and for some steps at least.
        if self._held < 0 if placed is None else placed.block != self._block:
            self._held = BLOCK_STEPS
            self._handed_back = self._config.guard and self._guard.hands_back(load_bin(requests))
        if placed is None:
            return "engine" if self._handed_back else "policy", None
        self._block = placed.block
        if self._handed_back:
            arm: Arm = "policy" if placed.window == "block" else "engine"
            placed = placed._replace(arm=arm)
        return placed.arm, placed

    def add_prompts(self, tokens: int) -> None:
        """Count a step of prompts alone (tokens)."""
        self._differences.add_prompts(tokens)

    def observe(self, placed: Placed | None, outcome: StepOutcome) -> list[Change]:
        """Learn from a finished step; return the guard's changes."""
        found = self._differences.add(placed, outcome)
        if found is None:
            return []
        self._gains.setdefault(found.arm, Gains()).add(found)
        if self._proving:
            self._proof.setdefault(found.arm, Gains()).add(found)
        if found.arm != "engine" or not self._config.guard:
            return []
        return [Change(load_name(key), away) for key, away in self._guard.add(found)]

    def status(self) -> dict[str, Any]:
        """Return the measured gains, JSON-compatible."""
        blocks, guard, now = self._blocks, self._guard, self._now
        handed_back = sorted(guard.handed_back) if self._config.guard else []
        return {
            "share": self._config.share,
            "arms": {arm: gains.figures(now) for arm, gains in self._gains.items()},
            "left_out": dict(self._differences.left_out),
            "off_cold": blocks.cold_steps / max(blocks.steps, 1),
            "handed_back": [load_name(key) for key in handed_back],
            "times_handed_back": guard.times,
            "proof_seconds_left": max(min(self._until - now, self._proving), 0.0),
            "proof": {arm: gains.figures(now) for arm, gains in self._proof.items()},
        }
