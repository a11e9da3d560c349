"""V3: fixed K by batch size, vLLM, H100, Llama-3.1-8B with EAGLE-3, gsm8k.

From pramodjella/speculative-decoding-draft-length-audit. The rows, and what is known of their runs,
are those of V9; here each of them has a bound. Batch 1, where the drafter's pass was fitted, and
batch 4, which is not in the table to reproduce, do not count. The ratios that count divide by
throughputs without drafts that the host's seconds were fitted on, so that V9 counts none of them;
nothing was fitted on the runs with drafts.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.validation.at_load import Published, clients_of, published, rows_of
from benchmarks.validation.row import Check, Row, cells_within

TITLE = "vLLM, H100, Llama-3.1-8B, EAGLE-3, gsm8k: speed-up by K and batch"
BOUND = 0.15
BEST_K_BOUND = 0.03

_PASS_FITTED = "H100, vLLM, EAGLE-3, gsm8k, one request"
_TABLES = (_PASS_FITTED, "H100, vLLM, EAGLE-3, gsm8k")
_BATCHES = (8, 32, 64)
_DEEPEST = 4


def rows(data_folder: Path) -> list[Row]:
    """Speed-up by K and batch."""
    del data_folder
    found = []
    for table in published():
        if table.name in _TABLES:
            found += [_as_batch(row) for row in rows_of(_for_the_bound(table))]
    return found


def checks(rows: list[Row]) -> list[Check]:
    """Every cell, and the best K of every batch."""
    return [cells_within(rows), *(_best_k(rows, batch) for batch in _BATCHES)]


def _for_the_bound(table: Published) -> Published:
    role = "fit" if table.name == _PASS_FITTED else "validate"
    return msgspec.structs.replace(table, plain={}, role=role)


def _as_batch(row: Row) -> Row:
    batch, k = clients_of(row), row.label.split(", ")[1]
    counted = batch in _BATCHES and int(k.removeprefix("K = ")) <= _DEEPEST
    note = row.note or ("" if counted else "for information, not in the table to reproduce")
    label = f"batch {batch}, {k}"
    return msgspec.structs.replace(
        row, table="V3", label=label, counted=counted, bound=BOUND, note=note
    )


def _best_k(rows: list[Row], batch: int) -> Check:
    of_batch = [row for row in rows if row.counted and row.label.startswith(f"batch {batch},")]
    chosen = max(of_batch, key=lambda row: row.simulated)
    best = max(of_batch, key=lambda row: row.published)
    loss = 1.0 - chosen.published / best.published
    return Check(
        demand=f"batch {batch}: best K right, or within {BEST_K_BOUND:.0%} of the best",
        found=f"simulated best {chosen.label.split(', ')[1]}, {loss:.1%} below the published best",
        passed=loss <= BEST_K_BOUND,
    )
