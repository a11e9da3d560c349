"""One JSON object of all results of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from .results import Results

CELL = re.compile(
    r"(?P<stage>[a-z]+)/(?P<method>\w+)/t(?P<t>[\d.]+)/(?P<load>\d+)/(?P<arm>[\w-]+)/\d+"
)
KEPT_AS_THEY_ARE = ("about", "extent", "libraries", "ragged_penalty", "profile", "simulator")
GROUPS = ("engine", "capture", "identity", "graphs", "steps", "prompts", "own", "acceptance")
"""Beginnings of keys whose results are kept as they are, by the rest of the key."""

Found = Mapping[str, Any]
Spread = dict[str, float]


def summarise(out: Path) -> dict[str, Any]:
    """All results under a folder, cells of the same arm taken together."""
    found = Results(out / "results.jsonl").found
    summary: dict[str, Any] = {key: found[key] for key in KEPT_AS_THEY_ARE if key in found}
    summary["runs"] = [{"began": began, **row} for began, row in of_group(found, "run").items()]
    summary["failed"] = {
        key: why for key, why in of_group(found, "failed").items() if key not in found
    }
    for group in GROUPS:
        if rows := of_group(found, group):
            summary[group] = rows
    for stage, name in {"sweep": "sweep", "graphs": "graph_cells"}.items():
        if served := cells(found, stage):
            summary[name] = served
    return summary


def of_group(found: Found, group: str) -> dict[str, Any]:
    """Results whose key begins with a group, by the rest of the key."""
    return {
        key.partition("/")[2]: value for key, value in found.items() if key.startswith(f"{group}/")
    }


def cells(found: Found, stage: str) -> list[dict[str, Any]]:
    """A row for each method, temperature, load and arm of a stage.

    `over_none` and `over_best_static` are ratios of throughput, paired by repeat. The best static K
    is the one with the highest median here, so picking it from noisy figures biases it upward.
    """
    return list(_rows(found, stage))


def _rows(found: Found, stage: str) -> Iterator[dict[str, Any]]:
    places: dict[tuple[str, float, int], dict[str, dict[int, Any]]] = {}
    for key, result in found.items():
        match = CELL.fullmatch(key)
        if match is not None and match["stage"] == stage:
            place = (match["method"], float(match["t"]), int(match["load"]))
            repeat = int(key.rpartition("/")[2])
            places.setdefault(place, {}).setdefault(match["arm"], {})[repeat] = result
    for (method, temperature, load), arms in sorted(places.items()):
        rates = {
            arm: {repeat: cell["tokens_per_s"] for repeat, cell in mine.items()}
            for arm, mine in arms.items()
        }
        statics = [arm for arm in rates if re.fullmatch(r"static\d+", arm)]
        best = max(statics, key=lambda arm: median(rates[arm].values()), default=None)
        for arm, mine in arms.items():
            steps = [cell for cell in mine.values() if cell.get("steps")]
            others = {name: paired(rates[arm], rates[name]) for name in rates if name != arm}
            yield {
                "method": method,
                "temperature": temperature,
                "load": load,
                "arm": arm,
                "tokens_per_s": spread(rates[arm].values()),
                "over_none": paired(rates[arm], rates.get("none", {})),
                "over_best_static": paired(rates[arm], rates[best]) if best else None,
                "best_static": best,
                "over": others,
                "step_ms": spread(cell["step_ms"][1] for cell in steps),
                "mean_k": spread(cell["mean_k"] for cell in steps),
                "accepted": sum(cell["accepted"] for cell in steps),
                "drafted": sum(cell["drafted"] for cell in steps),
                "graphs_by_k": _added(cell["graphs_by_k"] for cell in steps),
            }


def paired(these: Mapping[int, float], those: Mapping[int, float]) -> Spread | None:
    """Ratios of two arms in the same repeats."""
    return spread(these[repeat] / those[repeat] for repeat in these if repeat in those)


def spread(values: Iterable[float]) -> Spread | None:
    """Lowest, middle and highest of some values; None of none."""
    some = sorted(values)
    if not some:
        return None
    return {
        "low": round(some[0], 4),
        "middle": round(median(some), 4),
        "high": round(some[-1], 4),
        "count": len(some),
    }


def _added(counts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {}
    for each in counts:
        for k, modes in each.items():
            for mode, count in modes.items():
                row = total.setdefault(k, {})
                row[mode] = row.get(mode, 0) + count
    return dict(sorted(total.items()))
