"""Results of a sweep arranged for comparison: per setting, a family of loads, policies on them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np

from adaptive_spec.config import Config
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.sweep.results import Row, SweepResults

NO_SPECULATION, BEST_STATIC, FORESIGHT = "no speculation", "best fixed K", "foresight"
REFERENCES = (BEST_STATIC, NO_SPECULATION, FORESIGHT)

Metric = Callable[[Row], float | None]
throughput: Metric = attrgetter("result.throughput_tok_s")
tpot: Metric = attrgetter("result.tpot_ms.mean")
"""Mean time per output token (milliseconds)."""


@dataclass(frozen=True)
class Spread:
    """A figure over the seeds of a cell."""

    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Point:
    """A load within a family: its name and place on the axis."""

    load: str
    x: float


@dataclass(frozen=True)
class Family:
    """A family of loads that differ in one number, or that have nothing in common.

    Attributes:
        name: for people.
        axis: what the number is, with its unit; empty if there is none.
        points: ascending.
        closed: throughput is the score, otherwise TPOT.
    """

    name: str
    axis: str
    points: tuple[Point, ...]
    closed: bool


@dataclass(frozen=True)
class Setting:
    """The axes of a cell without load and seed."""

    acceptance: str
    drafter: str
    hardware: str
    engine: str

    @property
    def title(self) -> str:
        """Name of the comparison in a report."""
        parts = [self.acceptance, self.drafter, self.hardware]
        return " · ".join(parts if self.engine == "default" else [*parts, self.engine])


class Comparison:
    """The rows of a sweep by setting, load and policy."""

    def __init__(self, results: SweepResults) -> None:
        self.results = results
        entries = results.config.load_entries()
        twice = {text for text, count in Counter(e.load for e in entries).items() if count > 1}
        # Of loads with the same text, only the plain one is a point among others like it.
        self._texts = {
            entry.label: entry.label if entry.name and entry.load in twice else entry.load
            for entry in entries
        }
        self._rows: dict[tuple[Setting, str, str], list[Row]] = {}
        # A policy that is always off is no speculation: one series is enough.
        policies = [parse_policy(entry.policy) for entry in results.config.policy_entries()]
        hidden = {NO_SPECULATION} if any(each.never_speculates for each in policies) else set()
        for row in results.rows:
            where = _setting(row), row.cell.load
            for name in _names(row):
                if name not in hidden:
                    self._rows.setdefault((*where, name), []).append(row)

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Settings in the order of the sweep."""
        return tuple(dict.fromkeys(setting for setting, _, _ in self._rows))

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """Best first: by mean score over that of the best fixed K, or by mean throughput."""
        names = dict.fromkeys(r.result.policy for r in self.results.rows if r.kind == "policy")
        return tuple(sorted(names, key=self._rank))

    @cached_property
    def default(self) -> str | None:
        """The policy that runs where nobody chose another, if it took part."""
        for entry in self.results.config.policy_entries():
            if entry.label in self.policies and parse_policy(entry.policy).name == Config().policy:
                return entry.label
        return None

    @cached_property
    def has_oracles(self) -> bool:
        """There is something to hold the policies against."""
        return any(row.result.regret is not None for row in self.results.rows)

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.results.config.seed_list())

    def rows_of(self, policy: str) -> list[Row]:
        """All rows of a policy."""
        return [r for r in self.results.rows if r.kind == "policy" and r.result.policy == policy]

    def rows(self, setting: Setting, load: str, name: str) -> list[Row]:
        """Rows of a policy or reference on a load, one per seed."""
        return self._rows.get((setting, load, name), [])

    def spread(self, setting: Setting, load: str, name: str, metric: Metric) -> Spread | None:
        """A metric of a policy or reference on a load, over its seeds."""
        return spread_of(metric(row) for row in self.rows(setting, load, name))

    def families(self, setting: Setting) -> list[Family]:
        """The loads of a setting, by what they have in common."""
        members: dict[tuple[str, str], list[Point]] = {}
        closed: dict[str, bool] = {}
        for where, load, name in self._rows:
            if where == setting and load not in closed:
                closed[load] = self._rows[where, load, name][0].closed
                family, axis, x = place_of(self._texts.get(load, load))
                members.setdefault((family, axis), []).append(Point(load, x))
        families, alone = [], []
        for (family, axis), points in members.items():
            if len(points) > 1:
                ascending = tuple(sorted(points, key=lambda point: point.x))
                families.append(Family(family, axis, ascending, closed[points[0].load]))
            else:
                alone += points
        for kind in (True, False):
            chosen = [point for point in alone if closed[point.load] is kind]
            if chosen:
                numbered = tuple(Point(p.load, float(i)) for i, p in enumerate(chosen))
                families.append(Family("single loads", "", numbered, kind))
        return families

    def _rank(self, policy: str) -> tuple[float, str]:
        rows = self.rows_of(policy)
        of_best = [row.result.regret.of_best_static for row in rows if row.result.regret]
        values = of_best or [row.result.throughput_tok_s for row in rows]
        return -float(np.mean(values)), policy


def place_of(text: str) -> tuple[str, str, float]:
    """Family, axis and place on it of a load, from its text."""
    number = r"([0-9.]+(?:e[+-]?\d+)?)"
    if match := re.fullmatch(rf"closed:{number}", text):
        return "closed loop", "concurrent requests", float(match[1])
    if match := re.fullmatch(rf"(.+)@closed={number}", text):
        return f"closed loop, {_file(match[1])}", "concurrent requests", float(match[2])
    if match := re.fullmatch(rf"poisson:{number}", text):
        return "Poisson arrivals", "requests per second", float(match[1])
    if match := re.fullmatch(rf"gamma:{number}:{number}", text):
        return f"Gamma arrivals, CV {match[2]}", "requests per second", float(match[1])
    if match := re.fullmatch(rf"(.+)@((?:.*,)?)rate={number}((?:,.*)?)", text):
        rest = ",".join(part for part in (match[2] + match[4]).split(",") if part)
        return f"{_file(match[1])} {rest}".rstrip(), "rate, times the recorded", float(match[3])
    return text, "", 0.0


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Mean and range of the values that there are; one that is not a number is none."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return None
    return Spread(float(np.mean(known)), min(known), max(known), len(known))


def of_best_static(row: Row) -> float | None:
    """Score over that of the best fixed K."""
    return None if row.result.regret is None else row.result.regret.of_best_static


def _names(row: Row) -> list[str]:
    """Names under which a row is found."""
    if row.kind == "policy":
        return [row.result.policy]
    if row.kind == "foresight":
        return [FORESIGHT]
    names = []
    if row.result.policy == "static:k=0":
        names.append(NO_SPECULATION)
    if row.result.regret and row.result.policy == f"static:k={row.result.regret.best_static_k}":
        names.append(BEST_STATIC)
    return names


def _setting(row: Row) -> Setting:
    cell = row.cell
    return Setting(cell.acceptance, cell.drafter, cell.hardware, cell.engine)


def _file(text: str) -> str:
    return text.rpartition("/")[2]
