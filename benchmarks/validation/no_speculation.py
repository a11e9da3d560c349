"""V8: time per output token without speculation, against two public sets of measurements.

*Silicon samples*: mean TPOT of closed loops, worked out from step times.
*Request times*: three real vLLM runs of 300 requests, replayed through the engine loop.

What is compared stands in `no_speculation.json`. Parameters are those of
`adaptive_spec.sim.hardware`: data sheets, kernel tables, and figures fitted on rows that say so and
are not counted.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

from benchmarks.validation.aiconfigurator_silicon import SiliconPair, silicon_rows
from benchmarks.validation.llmservingsim_requests import RequestReplay, request_rows
from benchmarks.validation.row import Check, Row, counted_of

TITLE = "Time per output token without speculation"

_PAIRS_WANTED = 3
_MEDIAN_BOUND = 0.10


class _Sets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    silicon: tuple[SiliconPair, ...]
    requests: tuple[RequestReplay, ...]


def rows(data_folder: Path) -> list[Row]:
    """All rows of both sets. Raises DataError if a file is missing or damaged."""
    sets = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=_Sets)
    return [*silicon_rows(data_folder, sets.silicon), *request_rows(data_folder, sets.requests)]


def checks(rows: list[Row]) -> list[Check]:
    """At least three pairs of GPU and model, each with its median error within the bound."""
    by_pair: dict[str, list[float]] = {}
    for row in counted_of(rows):
        by_pair.setdefault(row.table, []).append(abs(row.error))
    medians = {pair: statistics.median(errors) for pair, errors in by_pair.items()}
    missed = {pair: median for pair, median in medians.items() if median > _MEDIAN_BOUND}
    found = [
        Check(
            demand=f"median error at most {_MEDIAN_BOUND:.0%} on at least {_PAIRS_WANTED} pairs of "
            "GPU and model",
            found=f"on {len(medians) - len(missed)} of {len(medians)}",
            passed=len(medians) - len(missed) >= _PAIRS_WANTED,
        )
    ]
    for pair, median in medians.items():
        found.append(
            Check(
                demand=f"{pair}: median error of {len(by_pair[pair])} rows at most "
                f"{_MEDIAN_BOUND:.0%}",
                found=f"{median:.1%}",
                passed=median <= _MEDIAN_BOUND,
            )
        )
    return found
