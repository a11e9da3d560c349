"""Leaderboards: every policy of each group of a sweep, on the cells that all of them have run.

A cell here is one acceptance set, drafter, machine, engine and load; its seeds are averaged first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from statistics import mean, median

from adaptive_spec.sim.results.result import Regret
from adaptive_spec.sim.results.segments import Recovery
from adaptive_spec.sim.sweep.config import Group, SweepConfig
from adaptive_spec.sim.sweep.results import Row, SweepResults, group_rows

EVERYTHING = "all cells"

of_best_static: Callable[[Regret], float] = attrgetter("of_best_static")
of_no_speculation: Callable[[Regret], float] = attrgetter("of_no_speculation")

Place = tuple[str, str, str, str, str]
"""Acceptance set, drafter, hardware, engine, load."""


@dataclass(frozen=True)
class Recoveries:
    """The way back after the changes of a group's cells.

    Attributes:
        changes: how many were measured.
        recovered: how many of them the policy has recovered from.
        steps, seconds: median over those.
        lost_seconds: mean over all, beyond what the best fixed K takes.
    """

    changes: int
    recovered: int
    steps: float | None
    seconds: float | None
    lost_seconds: float


@dataclass(frozen=True)
class Standing:
    """A policy within a group. Ratios are of scores; None without oracles.

    Attributes:
        policy: as configured.
        cells: it has run.
        of_best_static: mean over the cells, of the best fixed K of each.
        spread: half the range of that mean over the seeds; None of one seed.
        worst: the lowest of them, and where.
        of_no_speculation: mean over the cells.
        worst_of_no_speculation: the lowest.
        of_foresight: mean over the runs; None where it was not run.
        by_column: mean by the group's columns; None where it has not run.
        recoveries: None where nothing changes.
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
    recoveries: Recoveries | None
    switches: float
    throughput_tok_s: float | None
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    goodput_req_s: float | None
    decision_p50_us: float | None
    fail_opens: int


@dataclass(frozen=True)
class Condition:
    """A group of the sweep.

    Attributes:
        name, about: of the group.
        columns: loads, or acceptance sets where all cells have one load.
        cells: that every policy has run.
        seeds: of each.
        standings: best first.
        best_ks: the best fixed K by column, where columns are loads and the oracles have run.
    """

    name: str
    about: str
    columns: tuple[str, ...]
    cells: int
    seeds: int
    standings: tuple[Standing, ...]
    best_ks: tuple[str, ...] = ()


def conditions(results: SweepResults) -> list[Condition]:
    """The groups of a sweep, in order; without groups, everything as one."""
    groups = results.config.groups or {EVERYTHING: Group()}
    found = []
    for name, group in groups.items():
        rows = group_rows(results, group)
        if rows:
            found.append(_condition(name, group, rows, results.config))
    return found


def by_load(results: SweepResults) -> list[Condition]:
    """The loads of a sweep, and all of them together at the end; in a sweep of groups, those."""
    if results.config.groups:
        return conditions(results)
    rows = group_rows(results, Group())
    loads = list(dict.fromkeys(row.cell.load for row in rows))
    found = [
        _condition(load, Group(), [row for row in rows if row.cell.load == load], results.config)
        for load in loads
    ]
    return found if len(loads) == 1 else [*found, *conditions(results)]


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
            made.append((_condition(name, Group(), played, results.config), rows))
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


def _condition(name: str, group: Group, rows: list[Row], config: SweepConfig) -> Condition:
    loads = tuple(dict.fromkeys(row.cell.load for row in rows))
    several = len(loads) > 1
    columns = loads if several else tuple(dict.fromkeys(row.cell.acceptance for row in rows))
    by_policy: dict[str, list[Row]] = {}
    for row in rows:
        by_policy.setdefault(row.result.policy, []).append(row)
    standings = [
        _standing(policy, by_policy[policy], columns, several=several)
        for policy in config.policies_of(group)
        if policy in by_policy
    ]
    ranked = sorted(standings, key=lambda each: -(each.of_best_static or 0.0))
    return Condition(
        name=name,
        about=group.about,
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
    found = [each for result in results if result.regret for each in result.regret.recoveries]
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
        recoveries=recoveries(found),
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


def recoveries(found: list[Recovery]) -> Recoveries | None:
    """Several recoveries in a few figures; None of none."""
    if not found:
        return None
    steps = [each.steps for each in found if each.steps is not None]
    seconds = [each.seconds for each in found if each.seconds is not None]
    return Recoveries(
        changes=len(found),
        recovered=len(steps),
        steps=median(steps) if steps else None,
        seconds=median(seconds) if seconds else None,
        lost_seconds=mean(each.lost_seconds for each in found),
    )


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return mean(known) if known else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
