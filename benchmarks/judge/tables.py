"""vLLM's table of K by batch size, tuned on runs of fixed K."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from .arms import Table, table_name
from .cells import Cell
from .rows import SIZES, Row

LEAST_STEPS = 5
"""A class of batch sizes with fewer steps takes the K of the class below."""
MOST = SIZES[-1]


def tuned_on_cell(rows: Mapping[int, Sequence[Row]]) -> str:
    """The table whose K have the most tokens per second in steps of each batch size.

    Args:
        rows: runs of the cell with each fixed K; 0 keeps the drafter in step, as the table does.
    """
    best: dict[int, int] = {}
    for size in SIZES:
        rates: dict[int, float] = {}
        for k, same in rows.items():
            parts = [row.sizes[str(size)] for row in same if str(size) in row.sizes]
            if sum(part[0] for part in parts) >= LEAST_STEPS:
                rates[k] = sum(part[1] for part in parts) / sum(part[2] for part in parts)
        if len(rates) == len(rows):
            best[size] = max(rates, key=lambda k: rates[k])
    return _named(best)


def tuned_on_constant(cells: Iterable[Cell], rows: Mapping[tuple[str, int], Sequence[Row]]) -> str:
    """The table whose K are best with each constant number of clients.

    Args:
        cells: with constant loads.
        rows: by name of the cell and K.
    """
    best: dict[int, int] = {}
    ks = sorted({k for _, k in rows})
    for cell in cells:
        rates = {
            k: mean(row.score(cell.measure) for row in rows[cell.name, k])
            for k in ks
            if rows.get((cell.name, k))
        }
        if rates:
            best[cell.traffic.pieces[0].clients] = max(rates, key=lambda k: rates[k])
    return _named(best)


def _named(best: Mapping[int, int]) -> str:
    """Each measured size stands for those down to the one before; the last for all above."""
    ranges: Table = []
    low = 1
    sizes = sorted(best)
    for size in sizes:
        high = MOST if size == sizes[-1] else size
        if ranges and ranges[-1][2] == best[size]:
            ranges[-1] = ranges[-1][0], high, best[size]
        else:
            ranges.append((low, high, best[size]))
        low = high + 1
    return table_name(ranges or [(1, MOST, 0)])
