"""What confidence is worth in the sweep of `benchmarks/confidence.yaml`: one line per set and load.

    python benchmarks/confidence_gain.py out/confidence --results benchmarks/results

All are ratios of throughput in one cell, where all have met the same requests and the same luck;
mean over the seeds, and the lowest and highest of them for what confidence adds. `/ best K` is over
the fixed K that was best on this cell, known only afterwards.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, median

import msgspec

from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.sim.sweep.results import Row, SweepResults, read_results

CONFIDENCE, HISTORY, FORESIGHT = "goodput", "goodput, history only", "foresight"


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """One acceptance set at one load on one engine.

    Attributes:
        acceptance, engine, load: in the words of the sweep.
        seeds: how many.
        best_k: the median over seeds of the best fixed K.
        history: throughput without confidence over that of the best fixed K.
        confidence: with it.
        foresight: of the one that knows every acceptance beforehand: nothing can do better.
        added: with confidence over without.
        added_least, added_most: the same of single seeds.
        k: drafts verified per request and step: with confidence.
        k_history: without.
        acceptance_rate: accepted over verified drafts: with confidence.
        acceptance_rate_history: without.
        batch: requests that decode in a step.
    """

    acceptance: str
    engine: str
    load: str
    seeds: int
    best_k: float
    history: float
    confidence: float
    foresight: float | None
    added: float
    added_least: float
    added_most: float
    k: float
    k_history: float
    acceptance_rate: float
    acceptance_rate_history: float
    batch: float


def gains(results: SweepResults) -> list[Gain]:
    """In the order of the sweep. Cells that miss a policy or their oracles are left out."""
    found: dict[tuple[str, str, str], list[dict[str, Row]]] = {}
    cells: dict[object, dict[str, Row]] = {}
    for row in results.rows:
        if row.kind != "static":
            name = FORESIGHT if row.kind == "foresight" else row.result.policy
            cells.setdefault(row.cell, {})[name] = row
    for rows in cells.values():
        if CONFIDENCE in rows and HISTORY in rows and rows[HISTORY].result.regret is not None:
            cell = rows[HISTORY].cell
            found.setdefault((cell.engine, cell.acceptance, cell.load), []).append(rows)
    return [_gain(rows) for rows in found.values()]


def _gain(cells: Sequence[dict[str, Row]]) -> Gain:
    cell = cells[0][HISTORY].cell
    added = [
        rows[CONFIDENCE].result.throughput_tok_s / rows[HISTORY].result.throughput_tok_s
        for rows in cells
    ]
    foresight = [_of_best(rows[FORESIGHT]) for rows in cells if FORESIGHT in rows]
    return Gain(
        acceptance=cell.acceptance,
        engine=cell.engine,
        load=cell.load,
        seeds=len(cells),
        best_k=median(_best_k(rows[HISTORY]) for rows in cells),
        history=_rounded(_of_best(rows[HISTORY]) for rows in cells),
        confidence=_rounded(_of_best(rows[CONFIDENCE]) for rows in cells),
        foresight=_rounded(foresight) if foresight else None,
        added=_rounded(added),
        added_least=round(min(added), 4),
        added_most=round(max(added), 4),
        k=_rounded(rows[CONFIDENCE].result.mean_k for rows in cells),
        k_history=_rounded(rows[HISTORY].result.mean_k for rows in cells),
        acceptance_rate=_rounded(_rate(rows[CONFIDENCE]) for rows in cells),
        acceptance_rate_history=_rounded(_rate(rows[HISTORY]) for rows in cells),
        batch=_rounded(rows[HISTORY].result.mean_batch for rows in cells),
    )


def _of_best(row: Row) -> float:
    assert row.result.regret is not None
    return row.result.regret.of_best_static


def _best_k(row: Row) -> int:
    assert row.result.regret is not None
    return row.result.regret.best_static_k


def _rate(row: Row) -> float:
    return row.result.accepted_per_step / max(row.result.mean_k, 1e-9)


def _rounded(values: Iterable[float]) -> float:
    return round(mean(values), 4)


def text(found: Sequence[Gain]) -> str:
    """A table per engine."""
    lines = []
    for engine in dict.fromkeys(gain.engine for gain in found):
        lines += [
            f"engine: {engine}",
            f"{'acceptance':32}{'load':>12}{'best K':>7}{'history':>9}{'confid.':>9}"
            f"{'foresight':>10}{'added by confidence':>25}{'K':>6}{'acc.':>6}"
            f"{'hist. K':>8}{'acc.':>6}",
        ]
        lines += [_line(gain) for gain in found if gain.engine == engine]
        lines.append("")
    return "\n".join(lines)


def _line(gain: Gain) -> str:
    foresight = "-" if gain.foresight is None else f"{gain.foresight:.3f}"
    added = f"{_percent(gain.added)} ({_percent(gain.added_least)} {_percent(gain.added_most)})"
    return (
        f"{gain.acceptance:32}{gain.load:>12}{gain.best_k:7g}{gain.history:9.3f}"
        f"{gain.confidence:9.3f}{foresight:>10}{added:>25}{gain.k:6.2f}{gain.acceptance_rate:6.2f}"
        f"{gain.k_history:8.2f}{gain.acceptance_rate_history:6.2f}"
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", type=Path, help="its output folder")
    parser.add_argument("--results", type=Path, help="folder for confidence_gain.json")
    given = parser.parse_args(arguments)
    try:
        results = read_results(given.sweep)
    except AdaptiveSpecError as error:
        parser.exit(1, f"error: {error}\n")
    found = gains(results)
    if not found:
        parser.exit(1, f"error: {given.sweep}: no cell with {CONFIDENCE!r}, {HISTORY!r}, oracles\n")
    print(text(found))
    if given.results is not None:
        given.results.mkdir(parents=True, exist_ok=True)
        rows = [msgspec.to_builtins(gain) for gain in found]
        body = json.dumps({"version": results.version, "gains": rows}, indent=1)
        (given.results / "confidence_gain.json").write_text(f"{body}\n")


if __name__ == "__main__":
    main()
