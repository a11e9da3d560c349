"""The figures of a run of the judge: what docs/measured.md and README are made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

import msgspec

from .arms import is_static
from .cells import Cell
from .cpu import charged
from .engines import VLLM, Name
from .rows import COLD, WARM, Row, RowFile

RESULTS = Path(__file__).resolve().parents[1] / "results" / "judge.json"
QUICK = RESULTS.with_name("judge_quick.json")
PARTS = ("", COLD, WARM)


class ArmFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in a cell; lists are by seed.

    Attributes:
        scores: tokens per second, or 1 / mean seconds per token of arrivals.
        charged: the same with the CPU time that the device waits for; empty where it was not
            measured.
        cold: of a part `cold`: time of the best static K for the tokens of the first 300 steps,
            over the arm's.
        first_token: mean seconds until the first token, of arrivals.
        measuring: share of the steps that measure or explore.
        off_cold: share of the steps without the drafter.
        runs: the table that it stands for.
    """

    scores: list[float]
    charged: list[float]
    cold: list[float] = []
    first_token: list[float] = []
    measuring: float = 0.0
    off_cold: float = 0.0
    runs: str = ""


class CellFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All arms of a cell; those that learn are named with their part, as ``goodput warm``."""

    group: str
    name: str
    device: str
    method: str
    clients: int
    measure: str
    extra: bool
    arms: dict[str, ArmFigures]
    engine: Name = VLLM

    @property
    def static(self) -> list[str]:
        """Arms of a fixed K of 1 or more."""
        return [arm for arm in self.arms if is_static(arm)]

    @property
    def best(self) -> str:
        """The static K with the best mean score, chosen afterwards; empty if none was run."""
        return max(self.static, key=lambda arm: mean(self.arms[arm].scores), default="")

    def beside(self, before: CellFigures) -> CellFigures:
        """Return the figures of an earlier run whose arms that ran again are these.

        Ratios of a cold start are over the fixed K that this run has rows of.
        """
        arms = sorted({**before.arms, **self.arms}.items())
        return msgspec.structs.replace(self, arms=dict(arms))

    def over(self, arm: str, other: str, *, charge: bool = False) -> list[float]:
        """By seed, an arm's score over another's; empty where one of them was not run."""
        if arm not in self.arms or other not in self.arms:
            return []
        pair = self.arms[arm], self.arms[other]
        scores = [each.charged if charge else each.scores for each in pair]
        return [a / b for a, b in zip(*scores, strict=False)]


def figures(
    cells: Iterable[Cell], file: RowFile, seeds: Sequence[int], arms: Sequence[str] = ()
) -> list[CellFigures]:
    """Gather the runs of each cell: of these arms, or of all that were run."""
    found = []
    for cell in cells:
        rows = {
            (arm, part): same
            for arm in arms or file.arms
            for part in PARTS
            if (same := [row for s in seeds if (row := file.get(cell.name, arm, s, part))])
        }
        static = {arm: same for (arm, _), same in rows.items() if is_static(arm)}
        clients = max((piece.clients for piece in cell.traffic.pieces), default=0)
        found.append(
            CellFigures(
                group=cell.group,
                name=cell.name,
                device=cell.device,
                method=cell.method,
                clients=clients if cell.constant else 0,
                measure=cell.measure,
                extra=cell.extra,
                engine=cell.engine,
                arms={
                    f"{arm} {part}".strip(): _of_arm(cell, same, static)
                    for (arm, part), same in rows.items()
                },
            )
        )
    return found


def _of_arm(cell: Cell, rows: list[Row], static: dict[str, list[Row]]) -> ArmFigures:
    kinds = sum((sum(row.kinds.values()) for row in rows), 0)
    modes = sum((sum(row.modes.values()) for row in rows), 0)
    cold = []
    if rows[0].part == COLD:
        for row in rows:
            others = [each for same in static.values() for each in same if each.seed == row.seed]
            if others:
                times = [each.until(row.cold_tokens) for each in others]
                cold.append(round(min(times) / row.until(row.cold_tokens), 4))
    return ArmFigures(
        scores=[float(f"{row.score(cell.measure):.6g}") for row in rows],
        charged=[
            float(f"{row.score(cell.measure, charged(row, cell)):.6g}")
            for row in rows
            if cell.engine == VLLM
        ],
        cold=cold,
        first_token=[row.first_token[0] for row in rows if row.first_token],
        measuring=round(
            sum(row.kinds.get("measuring", 0) + row.kinds.get("exploring", 0) for row in rows)
            / max(kinds, 1),
            4,
        ),
        off_cold=round(sum(row.modes.get("off_cold", 0) for row in rows) / max(modes, 1), 4),
        runs=rows[0].runs if rows[0].runs != rows[0].arm else "",
    )


def publish(found: Sequence[CellFigures], path: Path = RESULTS) -> None:
    """Write the figures, a line for each cell."""
    lines = b",\n".join(map(msgspec.json.encode, found))
    path.write_bytes(b"[\n" + lines + b"\n]\n")


def published(path: Path = RESULTS) -> list[CellFigures]:
    """Read the committed figures."""
    return msgspec.json.decode(path.read_bytes(), type=list[CellFigures])
