"""Leaderboards: every policy of a sweep, on the cells that all of them have run.

A cell here is one acceptance set, drafter, machine, engine and load; its seeds are averaged first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from statistics import mean

from adaptive_spec.sim.result import Regret
from adaptive_spec.sim.sweep.config import SweepConfig
from adaptive_spec.sim.sweep.results import Row, SweepResults

EVERYTHING = "all cells"

of_best_static: Callable[[Regret], float] = attrgetter("of_best_static")
of_no_speculation: Callable[[Regret], float] = attrgetter("of_no_speculation")

Place = tuple[str, str, str, str, str]
"""Acceptance set, drafter, hardware, engine, load."""


@dataclass(frozen=True)
class Standing:
    """A policy on some cells. Ratios are of scores; None without oracles.

    Attributes:
        policy: as configured.
        cells: it has run.
        of_best_static: mean over the cells, of the best fixed K of each.
        spread: half the range of that mean over the seeds; None of one seed.
        worst: the lowest of them, and where.
        of_no_speculation: mean over the cells.
        worst_of_no_speculation: the lowest.
        of_foresight: mean over the runs; None where it was not run.
        by_column: mean by the columns; None where it has not run.
        switches: between off and on, per 1,000 steps.
        throughput_tok_s, tpot_p50_ms, tpot_p99_ms: means over the runs.
        goodput_req_s: requests within the limits, mean over the runs.
        decision_p50_us: mean over the runs, of the simulating machine.
        fail_opens: in all.
    """

    policy: str
    cells: int
    of_best_static: float | None
    spread: float | None
    worst: tuple[float, Place] | None
    of_no_speculation: float | None
    worst_of_no_speculation: float | None
    of_foresight: float | None
    by_column: tuple[float | None, ...]
    switches: float
    throughput_tok_s: float | None
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    goodput_req_s: float | None
    decision_p50_us: float | None
    fail_opens: int


@dataclass(frozen=True)
class Condition:
    """Some cells of the sweep.

    Attributes:
        name: for people.
        columns: loads, or acceptance sets where all cells have one load.
        cells: that every policy has run.
        seeds: of each.
        standings: best first.
        best_ks: the best fixed K by column, where columns are loads and the oracles have run.
    """

    name: str
    columns: tuple[str, ...]
    cells: int
    seeds: int
    standings: tuple[Standing, ...]
    best_ks: tuple[str, ...] = ()


def by_load(results: SweepResults) -> list[Condition]:
    """The loads of a sweep, and all of them together at the end."""
    rows = [row for row in results.rows if row.kind == "policy"]
    loads = list(dict.fromkeys(row.cell.load for row in rows))
    every = _condition(EVERYTHING, rows, results.config)
    found = [
        _condition(load, [row for row in rows if row.cell.load == load], results.config)
        for load in loads
    ]
    return found if len(loads) == 1 else [*found, every]


def settings(results: SweepResults) -> list[tuple[Condition, list[Row]]]:
    """Each setting (the axes without load and seed) with all its rows, oracles included."""
    found: dict[Place, list[Row]] = {}
    for row in results.rows:
        found.setdefault((*place_of_row(row)[:4], ""), []).append(row)
    made = []
    for place, rows in found.items():
        name = " · ".join(part for part in place if part not in ("", "default"))
        played = [row for row in rows if row.kind == "policy"]
        if played:
            made.append((_condition(name, played, results.config), rows))
    return made


def place_of_row(row: Row) -> Place:
    """Place of a row, without its seed."""
    cell = row.cell
    return cell.acceptance, cell.drafter, cell.hardware, cell.engine, cell.load


def by_place(rows: Iterable[Row], metric: Callable[[Regret], float]) -> dict[Place, float]:
    """A ratio by cell, mean over the seeds; rows without oracles left out."""
    values: dict[Place, list[float]] = {}
    for row in rows:
        if row.result.regret is not None:
            values.setdefault(place_of_row(row), []).append(metric(row.result.regret))
    return {place: mean(each) for place, each in values.items()}


def _condition(name: str, rows: list[Row], config: SweepConfig) -> Condition:
    loads = tuple(dict.fromkeys(row.cell.load for row in rows))
    several = len(loads) > 1
    columns = loads if several else tuple(dict.fromkeys(row.cell.acceptance for row in rows))
    by_policy: dict[str, list[Row]] = {}
    for row in rows:
        by_policy.setdefault(row.result.policy, []).append(row)
    standings = [
        _standing(entry.label, by_policy[entry.label], columns, several=several)
        for entry in config.policy_entries()
        if entry.label in by_policy
    ]
    ranked = sorted(standings, key=lambda each: -(each.of_best_static or 0.0))
    return Condition(
        name=name,
        columns=columns,
        cells=len({place_of_row(row) for row in rows}),
        seeds=len({row.cell.seed for row in rows}),
        standings=tuple(ranked),
        best_ks=tuple(_best_k(rows, load) for load in loads)
        if columns == loads and any(row.result.regret for row in rows)
        else (),
    )


def _best_k(rows: list[Row], load: str) -> str:
    regrets = [row.result.regret for row in rows if row.cell.load == load]
    ks = sorted({regret.best_static_k for regret in regrets if regret})
    return "–".join(map(str, (ks[0], ks[-1])[: len(ks)])) if ks else ""


def _standing(policy: str, rows: list[Row], columns: tuple[str, ...], *, several: bool) -> Standing:
    best, none = by_place(rows, of_best_static), by_place(rows, of_no_speculation)
    worst = min(best, key=lambda place: best[place]) if best else None
    axis = 4 if several else 0
    results = [row.result for row in rows]
    return Standing(
        policy=policy,
        cells=len({place_of_row(row) for row in rows}),
        of_best_static=_mean(best.values()),
        spread=_half_range_over_seeds(rows),
        worst=None if worst is None else (best[worst], worst),
        of_no_speculation=_mean(none.values()),
        worst_of_no_speculation=min(none.values(), default=None),
        of_foresight=_mean(_known(r.regret.of_foresight for r in results if r.regret)),
        by_column=tuple(
            _mean(value for place, value in best.items() if place[axis] == column)
            for column in columns
        ),
        switches=1e3 * sum(r.switches for r in results) / max(sum(r.steps for r in results), 1),
        throughput_tok_s=_mean(result.throughput_tok_s for result in results),
        tpot_p50_ms=_mean(_known(result.tpot_ms.p50 for result in results)),
        tpot_p99_ms=_mean(_known(result.tpot_ms.p99 for result in results)),
        goodput_req_s=_mean(_known(result.goodput_req_s for result in results)),
        decision_p50_us=_mean(_known(result.decision_us.p50 for result in results)),
        fail_opens=sum(result.fail_opens for result in results),
    )


def _half_range_over_seeds(rows: list[Row]) -> float | None:
    by_seed: dict[int, list[float]] = {}
    for row in rows:
        if row.result.regret is not None:
            by_seed.setdefault(row.cell.seed, []).append(row.result.regret.of_best_static)
    means = [mean(each) for each in by_seed.values()]
    return (max(means) - min(means)) / 2.0 if len(means) > 1 else None


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return mean(known) if known else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
