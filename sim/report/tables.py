"""Tables of the report: the standings of each group, and policy against load for each setting."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from adaptive_spec.sim.report.comparison import (
    Comparison,
    Family,
    Metric,
    Setting,
    Spread,
    of_best_static,
    throughput,
)
from adaptive_spec.sim.report.leaderboard import Condition, Standing

_mean_k: Metric = attrgetter("result.mean_k")
_accepted: Metric = attrgetter("result.accepted_per_step")

LEVEL = 0.005
"""Ratios nearer than this are called level: less than seeds usually differ."""
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


def winners(comparison: Comparison, setting: Setting, load: str) -> tuple[list[str], float]:
    """The policies that lead on a load, all within `LEVEL` of the best, and the lead in ratio.

    The lead is that of the only leader over the next; 0 where there are several or no others.
    """
    ratios = {}
    for policy in comparison.policies:
        spread = comparison.spread(setting, load, policy, of_best_static)
        if spread is not None:
            ratios[policy] = spread.mean
    best = max(ratios.values(), default=0.0)
    level = [policy for policy, ratio in ratios.items() if ratio >= best - LEVEL]
    behind = [ratio for policy, ratio in ratios.items() if policy not in level]
    return level, best - max(behind) if len(level) == 1 and behind else 0.0


def _leader(comparison: Comparison, setting: Setting, load: str) -> str:
    """Name the leader and its lead in the best fixed K's score, or count those that are level."""
    level, lead = winners(comparison, setting, load)
    if len(level) > 1:
        return f"{len(level)} level"
    return f"{level[0]} ({100 * lead:.1f} %)" if level and lead else "".join(level) or "–"


def _half_range(spread: Spread, digits: int) -> str:
    if spread.seeds < 2:
        return ""
    return f"±{(spread.high - spread.low) / 2:,.{digits}f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
