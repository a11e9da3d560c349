"""Published figures beside the simulator's, and what they must show."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table of published measurements.

    Attributes:
        table: name of the table, such as ``V2``; V8 has the pair of GPU and model here.
        label: which row of the publication.
        published: what was measured, or computed, there.
        simulated: what the engine loop gives.
        error: simulated over published, less one.
        counted: false where parameters were fitted on this row, or it is shown for information.
        bound: largest error allowed either way; None where the table has none for single rows.
        note: sources of parameters, or why the row is not counted.
    """

    table: str
    label: str
    published: float
    simulated: float
    error: float
    counted: bool
    bound: float | None = None
    note: str = ""

    @property
    def within(self) -> bool:
        """The error keeps the bound, if there is one."""
        return self.bound is None or abs(self.error) <= self.bound


def compared(
    table: str,
    label: str,
    published: float,
    simulated: float,
    *,
    counted: bool = True,
    bound: float | None = None,
    note: str = "",
) -> Row:
    """A row, with its error computed."""
    return Row(
        table=table,
        label=label,
        published=published,
        simulated=simulated,
        error=simulated / published - 1.0,
        counted=counted,
        bound=bound,
        note=note,
    )


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One demand on a table.

    Attributes:
        demand: what is asked for.
        found: what came out.
        passed: whether that is enough.
    """

    demand: str
    found: str
    passed: bool


def counted_of(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that count."""
    return [row for row in rows if row.counted]


def cells_within(rows: Sequence[Row]) -> Check:
    """Every counted row keeps its own bound; a table none of whose rows counts passes nothing."""
    bounded = [row for row in counted_of(rows) if row.bound is not None]
    if not bounded:
        return Check(demand="rows that count", found="none", passed=False)
    worst = max(bounded, key=lambda row: abs(row.error) / (row.bound or 1.0))
    missed = sum(not row.within for row in bounded)
    found = f"worst {worst.error:+.1%} ({worst.label})"
    if missed:
        found += f"; {missed} of {len(bounded)} miss it"
    bounds = sorted({f"{row.bound:.1%}" for row in bounded})
    return Check(
        demand=f"each of {len(bounded)} rows within {' or '.join(bounds)}",
        found=found,
        passed=not missed,
    )


def mean_within(rows: Sequence[Row], bound: float, what: str) -> Check:
    """The mean absolute error of the counted rows."""
    errors = [abs(row.error) for row in counted_of(rows)]
    mean = sum(errors) / len(errors) if errors else float("nan")
    return Check(
        demand=f"{what}: mean absolute error of {len(errors)} rows at most {bound:.0%}",
        found=f"{mean:.1%}",
        passed=bool(errors) and mean <= bound,
    )
