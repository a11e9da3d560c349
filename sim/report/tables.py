"""Tables of the report: over the whole sweep, and policy against load for each setting."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_spec.sim.report.comparison import (
    Comparison,
    Family,
    Setting,
    Spread,
    of_best_static,
    throughput,
)
from adaptive_spec.sim.report.findings import places, winners
from adaptive_spec.sim.report.leaderboard import Condition, Standing
from adaptive_spec.sim.sweep.results import Row
from adaptive_spec.sim.sweep.summary import ALL_LOADS, Summary, summarise

STRONGEST = 0.15
"""Ratio 1 ± this has the strongest shade."""


@dataclass(frozen=True)
class Shaded:
    """A cell of a table.

    Attributes:
        text: the figure.
        spread: half the range over seeds, or empty.
        hint: shown on hovering.
        shade: -1..1; below zero is worse than the best fixed K.
        leads: the best of its column, or level with it.
    """

    text: str
    spread: str = ""
    hint: str = ""
    shade: float = 0.0
    leads: bool = False

    @property
    def background(self) -> str:
        """A colour that works on light and dark pages; blue and orange, for all eyes."""
        strength = round(0.55 * abs(self.shade), 3)
        colour = "0, 114, 178" if self.shade > 0 else "213, 94, 0"
        return f"rgba({colour}, {strength})"


@dataclass(frozen=True)
class LoadTable:
    """Policies against the loads of one family."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Shaded, ...]], ...]
    ratios: bool
    notes: tuple[tuple[str, tuple[str, ...]], ...]
    """Lines below, a name and a text per load: who leads, and what explains it."""


@dataclass(frozen=True)
class BoardTable:
    """A group's policies against its columns, and what else is known of them."""

    title: str
    about: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Shaded, ...]], ...]


@dataclass(frozen=True)
class OverallLine:
    """A policy over all cells."""

    policy: str
    figures: tuple[str, ...]


OVERALL_COLUMNS = (
    "/ best fixed K, mean",
    "worst cell",
    "/ no speculation, worst",
    "/ foresight, mean",
    "goodput [req/s]",
    "TPOT p50 [ms]",
    "TPOT p99 [ms]",
    "preemptions",
    "decision p99 [µs]",
    "leads at",
)


def overall(comparison: Comparison) -> list[OverallLine]:
    """Every policy, best first."""
    table = summarise(comparison.results)
    last = table[-1].load if table else ALL_LOADS
    by_policy = {line.policy: line for line in table if line.load == last}
    leads = _leads(comparison)
    total = len(places(comparison, comparison.policies[0]))
    return [
        _overall(comparison, by_policy[policy], leads.get(policy, 0), total)
        for policy in comparison.policies
    ]


def load_table(comparison: Comparison, setting: Setting, family: Family) -> LoadTable:
    """Ratios to the best fixed K, or throughput where the oracles were not run."""
    ratios = comparison.has_oracles
    lines = []
    for policy in comparison.policies:
        if not any(comparison.rows(setting, point.load, policy) for point in family.points):
            continue
        cells = tuple(
            _cell(comparison, setting, point.load, policy, ratios=ratios) for point in family.points
        )
        lines.append((policy, cells))
    loads = tuple(point.load.rpartition("/")[2] for point in family.points)
    notes = _notes(comparison, setting, family) if ratios else ()
    return LoadTable(f"{setting.title}: {family.name}", loads, tuple(lines), ratios, notes)


BOARD_COLUMNS = (
    "worst",
    "/ no speculation, worst",
    "recovered",
    "steps",
    "s",
    "switches per 1,000",
    "TPOT p50 [ms]",
    "p99",
    "good req/s",
    "decision p50 [µs]",
)


def board_table(condition: Condition) -> BoardTable:
    """A condition of the leaderboard, with its mean and worst cell."""
    lines = tuple((each.policy, _board_line(each)) for each in condition.standings)
    cells = f"{condition.cells} cells, {condition.seeds} seed{'s' if condition.seeds > 1 else ''}"
    return BoardTable(
        f"{condition.name} ({cells})", condition.about, ("mean", *condition.columns), lines
    )


def _board_line(standing: Standing) -> tuple[Shaded, ...]:
    ratios = (standing.of_best_static, *standing.by_column)
    cells = [_shaded(ratio) for ratio in ratios]
    worst = standing.worst
    cells.append(_shaded(worst[0], " / ".join(worst[1])) if worst else Shaded("–"))
    cells.append(_shaded(standing.worst_of_no_speculation))
    found = standing.recoveries
    if found is None:
        cells += [Shaded("")] * 3
    else:
        cells.append(Shaded(f"{found.recovered} of {found.changes}"))
        cells += [Shaded(_number(found.steps)), Shaded(_number(found.seconds))]
    cells += [Shaded(_number(standing.switches))]
    figures = (standing.tpot_p50_ms, standing.tpot_p99_ms, standing.goodput_req_s)
    cells += [Shaded(_number(figure)) for figure in figures]
    cells.append(Shaded(_number(standing.decision_p50_us)))
    return tuple(cells)


def _shaded(ratio: float | None, hint: str = "") -> Shaded:
    if ratio is None:
        return Shaded("–")
    shade = max(-1.0, min(1.0, (ratio - 1.0) / STRONGEST))
    return Shaded(f"{ratio:.3f}", hint=hint, shade=shade)


def _cell(
    comparison: Comparison, setting: Setting, load: str, policy: str, *, ratios: bool
) -> Shaded:
    metric = of_best_static if ratios else throughput
    spread = comparison.spread(setting, load, policy, metric)
    if spread is None:
        return Shaded("–")
    speed = comparison.spread(setting, load, policy, throughput)
    k = comparison.spread(setting, load, policy, _mean_k)
    assert speed is not None
    assert k is not None
    hint = f"{speed.mean:,.0f} tokens/s, mean K {k.mean:.2f}"
    if not ratios:
        return Shaded(f"{spread.mean:,.0f}", _half_range(spread, 0), hint)
    shade = max(-1.0, min(1.0, (spread.mean - 1.0) / STRONGEST))
    leads = policy in winners(comparison, setting, load)[0]
    return Shaded(f"{spread.mean:.3f}", _half_range(spread, 3), hint, shade, leads)


def _notes(
    comparison: Comparison, setting: Setting, family: Family
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    subject = comparison.default or comparison.policies[0]
    best, chosen, accepted = [], [], []
    for point in family.points:
        rows = comparison.rows(setting, point.load, subject)
        ks = sorted({row.result.regret.best_static_k for row in rows if row.result.regret})
        best.append("–".join(map(str, (ks[0], ks[-1])[: len(ks)])) if ks else "")
        k = comparison.spread(setting, point.load, subject, _mean_k)
        hits = comparison.spread(setting, point.load, subject, _accepted)
        chosen.append("" if k is None else f"{k.mean:.2f}")
        accepted.append("" if hits is None else f"{hits.mean:.2f}")
    leaders = tuple(_leader(comparison, setting, point.load) for point in family.points)
    return (
        ("leads (ahead of the next by)", leaders),
        ("best fixed K", tuple(best)),
        (f"mean K of {subject}", tuple(chosen)),
        (f"accepted per step, {subject}", tuple(accepted)),
    )


def _leader(comparison: Comparison, setting: Setting, load: str) -> str:
    """Who leads and by how much of the best fixed K's score, or how many are level."""
    ratios = {}
    for policy in comparison.policies:
        spread = comparison.spread(setting, load, policy, of_best_static)
        if spread is not None:
            ratios[policy] = spread.mean
    level, best = winners(comparison, setting, load)
    if not level:
        return "–"
    if len(level) > 1:
        return f"{len(level)} level"
    behind = [ratio for policy, ratio in ratios.items() if policy != level[0]]
    return f"{level[0]} ({100 * (best - max(behind)):.1f} %)" if behind else level[0]


def _overall(comparison: Comparison, line: Summary, leads: int, total: int) -> OverallLine:
    rows = comparison.rows_of(line.policy)
    good = [row.result.goodput_req_s for row in rows if row.result.goodput_req_s is not None]
    figures = (
        _ratio(line.of_best_static_mean),
        _ratio(line.of_best_static_worst),
        _ratio(line.of_no_speculation_worst),
        _ratio(line.of_foresight_mean),
        f"{sum(good) / len(good):.2f}" if good else "–",
        _number(line.tpot_p50_ms),
        _number(line.tpot_p99_ms),
        f"{sum(row.result.preemptions for row in rows):,}",
        _number(line.decision_p99_us),
        f"{leads} of {total}" if total else "–",
    )
    return OverallLine(line.policy, figures)


def _leads(comparison: Comparison) -> dict[str, int]:
    counts: dict[str, int] = {}
    for setting in comparison.settings:
        for family in comparison.families(setting):
            for point in family.points:
                for policy in winners(comparison, setting, point.load)[0]:
                    counts[policy] = counts.get(policy, 0) + 1
    return counts


def _mean_k(row: Row) -> float | None:
    return row.result.mean_k


def _accepted(row: Row) -> float | None:
    return row.result.accepted_per_step


def _half_range(spread: Spread, digits: int) -> str:
    if spread.seeds < 2:
        return ""
    return f"±{(spread.high - spread.low) / 2:,.{digits}f}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
