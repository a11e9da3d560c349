"""Audit blocks: which arm runs in a step.

Steps with decoding requests are cut into frames. At a random place of each frame stands one block,
in which another arm runs, with a window of the same length on both sides to compare it with. Places
come from a generator of their own, seeded with the configured seed and the frame's number: they
depend neither on the sampler nor on drafts or outcomes (docs/losslessness.md).
"""

from __future__ import annotations

from random import Random
from typing import Literal, NamedTuple

from adaptive_spec.config import Audit

Arm = Literal["policy", "engine", "none"]
Window = Literal["before", "block", "after"]
_WINDOWS: tuple[Window, ...] = ("before", "block", "after")

BLOCK_STEPS = 64
"""Steps of a block, and of a window beside it."""
EDGE_STEPS = 8
"""First steps of a window. Drafts of the other arm's plan are still under way, and requests stand
where it has left them: deep drafts pass easy text in fewer steps, so that more of them are needed
until hard text has its own share of the steps again."""
_LEAST_FRAME = 4
"""Shortest frame (blocks): a block, a window on both sides, and room to place them at random."""


class Placed(NamedTuple):
    """Place of a step in or beside a block.

    Attributes:
        block: number of the block.
        window: the block itself, or the window before or after it.
        arm: what runs in this step.
        edge: the step is left out of the comparison.
    """

    block: int
    window: Window
    arm: Arm
    edge: bool


class Blocks:
    """Places blocks.

    Args:
        config: share and arms.
        seed: of the places.
        steps: length of a block, and of a window beside it (steps).
        first: number of the first frame.

    Attributes:
        steps, cold_steps: steps so far, and those of them that could begin no block since requests
            had lost the drafter (OFF-cold).
        frame: number of the present frame.
    """

    def __init__(self, config: Audit, seed: int, steps: int, first: int = 0) -> None:
        self.steps = self.cold_steps = 0
        self.frame = first - 1
        self._arms = config.arms
        self._seed = seed
        self._length = steps
        self._frame_steps = 0
        if config.share and config.arms:
            self._frame_steps = max(round(steps / config.share), _LEAST_FRAME * steps)
        self._at = self._frame_steps
        self._start = 0
        self._number = first
        self._arm: Arm = "engine"

    def place(self, *, cold: bool) -> Placed | None:
        """Return the place of the next step; None for one that is far from a block.

        Args:
            cold: requests have lost the drafter, or the policy plans so: a block that has not
                begun is put off until the steps before it are without.
        """
        if not self._frame_steps:
            return None
        self.steps += 1
        self.cold_steps += cold
        if self._at >= self._frame_steps:
            self._begin_frame()
        at, self._at = self._at, self._at + 1
        number, place = divmod(at - self._start + self._length, self._length)
        if not 0 <= number < 3:
            return None
        if cold and not number:
            self._number += 1
            self._start = at + 1 + self._length
            if self._start + 2 * self._length > self._frame_steps:  # no room is left
                self._start = 2 * self._frame_steps
            return None
        window = _WINDOWS[number]
        arm: Arm = self._arm if window == "block" else "policy"
        return Placed(self._number, window, arm, place < EDGE_STEPS)

    def _begin_frame(self) -> None:
        self.frame += 1
        self._number += 1
        random = Random(f"audit {self._seed} {self.frame}")
        length = self._length
        self._at = 0
        self._start = random.randint(length, self._frame_steps - 2 * length)
        self._arm = random.choice(self._arms)
