"""One JSON object of all results of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from ..arms import NONE, is_static
from ..figures import paired, spread
from .bench import Results

CELL = re.compile(
    r"(?P<stage>[a-z]+)/(?P<method>\w+)/t(?P<t>[\d.]+)/(?P<load>\d+)/(?P<arm>[^/]+)/(?P<repeat>\d+)"
)
KEPT_AS_THEY_ARE = (
    *("about", "options", "versions"),
    *("ragged_penalty", "profile", "simulator"),
)
GROUPS = ("engine", "capture", "identity", "graphs", "steps", "own", "acceptance", "audit")
"""Beginnings of keys whose results are kept as they are, by the rest of the key."""

Found = Mapping[str, Any]


def summarise(out: Path) -> dict[str, Any]:
    """All results under a folder, cells of the same arm taken together."""
    found = Results(out / "results.jsonl").found
    summary: dict[str, Any] = {key: found[key] for key in KEPT_AS_THEY_ARE if key in found}
    summary["runs"] = [{"began": began, **row} for began, row in of_group(found, "run").items()]
    summary["failed"] = {
        key: why for key, why in of_group(found, "failed").items() if key not in found
    }
    summary |= {group: rows for group in GROUPS if (rows := of_group(found, group))}
    for stage, name in {"sweep": "sweep", "graphs": "graph_cells"}.items():
        if served := list(cells(found, stage)):
            summary[name] = served
    return summary


def of_group(found: Found, group: str) -> dict[str, Any]:
    """Results whose key begins with a group, by the rest of the key."""
    return {
        key.partition("/")[2]: value for key, value in found.items() if key.startswith(f"{group}/")
    }


def cells(found: Found, stage: str) -> Iterator[dict[str, Any]]:
    """A row for each method, temperature, load and arm of a stage.

    `over`: ratios of throughput to the other arms, paired by repeat. The best static K is the one
    with the highest median here, so picking it from noisy figures biases it upward.
    """
    places: dict[tuple[str, float, int], dict[str, dict[int, Any]]] = {}
    for key, result in found.items():
        match = CELL.fullmatch(key)
        if match is not None and match["stage"] == stage:
            arms = places.setdefault((match["method"], float(match["t"]), int(match["load"])), {})
            arms.setdefault(match["arm"], {})[int(match["repeat"])] = result
    for (method, temperature, load), arms in sorted(places.items()):
        rates = {
            arm: {repeat: cell["tokens_per_s"] for repeat, cell in mine.items()}
            for arm, mine in arms.items()
        }
        statics = filter(is_static, rates)
        best = max(statics, key=lambda arm: median(rates[arm].values()), default="")
        for arm, mine in arms.items():
            steps = [cell for cell in mine.values() if cell.get("steps")]
            graphs: dict[str, Counter[str]] = {}
            for cell in steps:
                for k, modes in cell["graphs_by_k"].items():
                    graphs.setdefault(k, Counter()).update(modes)
            others = {name: paired(rates[arm], rates[name]) for name in rates if name != arm}
            yield {
                "method": method,
                "temperature": temperature,
                "load": load,
                "arm": arm,
                "tokens_per_s": spread(rates[arm].values()),
                "over": others,
                "over_none": paired(rates[arm], rates.get(NONE, {})),
                "over_best_static": paired(rates[arm], rates.get(best, {})),
                "best_static": best,
                "step_ms": spread(cell["step_ms"][1] for cell in steps),
                "mean_k": spread(cell["mean_k"] for cell in steps),
                "drafted": sum(cell["drafted"] for cell in steps),
                "graphs_by_k": dict(sorted(graphs.items())),
            }
