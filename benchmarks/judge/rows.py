"""One run of an arm in a cell, as a line of JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.sim.line_file import KeyedFile, write_whole

from .device import Work

COLD_STEPS = 300
"""First steps of a policy that has learned nothing."""
SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Largest batch of each size class."""
COLD, WARM = "cold", "warm"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run.

    Attributes:
        cell, arm, seed: of what.
        part: ``cold`` or ``warm`` of an arm that learns; empty for others.
        runs: what ran: the arm, or the table that it stands for.
        key: digest of what the row depends on; a row with another one is run again.
        steps, tokens, seconds: of the whole load.
        loaded: tokens and seconds until the last request was sent.
        curve: tokens and seconds after every tenth step up to 400, then every fiftieth.
        sizes: by class of batch size (`SIZES`): steps, tokens, seconds.
        verified: drafts verified per request and step.
        modes, kinds: steps by mode and by kind of plan, of an arm with our plugin.
        faults: failures of our plugin.
        per_token, first_token: mean, median and 99th percentile of seconds, over requests
            that arrive in time.
    """

    cell: str
    arm: str
    seed: int
    part: str = ""
    runs: str = ""
    key: str = ""
    steps: int
    tokens: int
    seconds: float
    loaded: tuple[int, float]
    curve: list[tuple[int, float]]
    sizes: dict[str, tuple[int, int, float]]
    verified: float
    modes: dict[str, int] = {}
    kinds: dict[str, int] = {}
    faults: int = 0
    per_token: tuple[float, float, float] | None = None
    first_token: tuple[float, float, float] | None = None

    @property
    def identity(self) -> tuple[str, str, int, str]:
        """Coordinates."""
        return self.cell, self.arm, self.seed, self.part

    def score(self, measure: str, waited: float = 0.0) -> float:
        """Tokens per second, or 1 / mean seconds per token.

        Args:
            measure: ``loaded``, ``whole`` or ``tpot``.
            waited: seconds in the whole run that the device waits for CPU.
        """
        tokens, seconds = (self.tokens, self.seconds)
        if measure == "loaded":
            tokens, seconds = self.loaded
        if measure == "tpot":
            assert self.per_token is not None
            tokens, seconds = 1, self.per_token[0]
        return tokens / (seconds * (1.0 + waited / self.seconds))

    def until(self, tokens: float) -> float:
        """Seconds until so many tokens were emitted."""
        counts, times = zip(*self.curve, strict=True)
        return float(np.interp(tokens, counts, times))

    @property
    def cold_tokens(self) -> float:
        """Tokens of the first `COLD_STEPS` steps."""
        return float(self.curve[min(COLD_STEPS // 10, len(self.curve) - 1)][0])


def summary(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, median and 99th percentile, with six digits."""
    found = np.mean(values), np.median(values), np.percentile(values, 99)
    mean, median, high = (float(f"{value:.6g}") for value in found)
    return mean, median, high


def curve_of(steps: Sequence[Work], seconds: Sequence[float]) -> list[tuple[int, float]]:
    """Tokens and seconds after some of the steps, the last one included."""
    tokens = np.cumsum([0, *(work.emitted for work in steps)]).tolist()
    times = np.cumsum([0.0, *seconds]).tolist()
    last = len(steps)
    at = [*range(0, min(400, last) + 1, 10), *range(450, last, 50)]
    if at[-1] != last:
        at.append(last)
    return [(tokens[n], round(times[n], 6)) for n in at]


def by_size(steps: Iterable[Work], seconds: Iterable[float]) -> dict[str, tuple[int, int, float]]:
    """Steps, tokens and seconds by class of batch size, of steps in which requests decode."""
    found: dict[int, list[float]] = {}
    for work, spent in zip(steps, seconds, strict=True):
        if work.requests:
            place = SIZES[min(bisect_left(SIZES, work.requests), len(SIZES) - 1)]
            entry = found.setdefault(place, [0, 0, 0.0])
            entry[0] += 1
            entry[1] += work.emitted
            entry[2] += spent
    return {
        str(size): (int(n), int(tokens), round(spent, 6))
        for size, (n, tokens, spent) in sorted(found.items())
    }


class RowFile(KeyedFile[Row]):
    """Rows by their coordinates."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Row, attrgetter("identity"))

    @property
    def arms(self) -> list[str]:
        """All that were run."""
        return sorted({row.arm for row in self.found.values()})

    def get(self, cell: str, arm: str, seed: int, part: str = "") -> Row | None:
        """Return a row, if it is there."""
        return self.found.get((cell, arm, seed, part))

    def write_sorted(self) -> None:
        """Write all rows anew, ordered by their coordinates."""
        rows = sorted(self.found.values(), key=lambda row: row.identity)
        text = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        write_whole(self.path, text)
