"""Writes the leaderboard of docs/mechanisms.md from the results of the sweep."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from adaptive_spec.sim.report.leaderboard import Condition, Standing, conditions
from adaptive_spec.sim.sweep.results import SweepResults
from benchmarks.leaderboard.checks import OURS, Demand, where

_MOST_COLUMNS = 6
_MARK = {True: "met", False: "**missed**", None: ""}

_SHOWN = ("core", "hardware", "arrivals", "changes")
"""Groups on the page; `adaptive-spec report` shows all."""

_HEAD = """The simulator runs `goodput`, the other policies of this project, the rules of other
systems and every static K on the same requests with the same luck:

```sh
python benchmarks/leaderboard.py tune       # profiles and tuned values of baselines
adaptive-spec sweep benchmarks/leaderboard.yaml --output out/leaderboard
python benchmarks/leaderboard.py write out/leaderboard
adaptive-spec report out/leaderboard        # every group and cell
```

Run with adaptive-spec {version}: {cells} cells, {runs:,} runs of policies.

The score is throughput in closed loops and 1 / mean TPOT where requests arrive by themselves. `/
best K` is the score over that of the best static K of the same cell, chosen in hindsight. Closed
loops are measured after 2,000 tokens per client, about 1,000 steps; Kmax is 6.
"""

_RULES = """Baselines that profile their engine at start-up get its cost profile
(`benchmarks/leaderboard/profiles`), and tables and gates are tuned for each acceptance set,
drafter and machine on runs with another seed (`benchmarks/leaderboard/tuned.json`); `goodput`,
bandits and regression get neither. All other options are the original's defaults. All policies
run on an engine that can vary K by request and depth by step. `adaptive-spec policies --sources`
says where each baseline's rule comes from, and its class in `sim/baselines` which faults it
keeps. Not covered: the whole cross product of the axes, token trees, memory pressure, acceptance
of larger models, perfect foresight.
"""


def document(results: SweepResults, demands: Sequence[Demand]) -> str:
    """The section of the page."""
    cells = len({row.cell for row in results.rows})
    runs = sum(row.kind == "policy" for row in results.rows)
    shown = [each for each in conditions(results) if each.name in _SHOWN]
    parts = [
        _HEAD.format(version=results.version, cells=cells, runs=runs),
        _demands(demands),
        *(_group(condition) for condition in shown),
        _RULES,
    ]
    if results.failures:
        lines = [f"* {each.cell.text} / {each.policy}: {each.error}" for each in results.failures]
        parts.append("Runs that failed:\n\n" + "\n".join(lines) + "\n")
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def replaced(page: str, section: str) -> str:
    """A page with its section between the marks renewed."""
    pattern = re.compile(r"(<!-- leaderboard -->\n).*?(<!-- /leaderboard -->)", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise SystemExit("error: the page has no single section `<!-- leaderboard -->`")
    return pattern.sub(lambda found: found[1] + section + found[2], page)


def _demands(demands: Sequence[Demand]) -> str:
    rows = [(each.wanted, each.found, _MARK[each.passed]) for each in demands]
    return _table(("demand on `goodput`", "found", ""), rows, left=3)


def _group(condition: Condition) -> str:
    text = f"### {condition.name}\n\n{_sentence(condition.about)} "
    text += f"{_count(condition.cells, 'cell')}, {_count(condition.seeds, 'seed')}.\n\n"
    wide = len(condition.columns) > _MOST_COLUMNS
    columns = () if wide else condition.columns
    changes = any(each.recoveries for each in condition.standings)
    head = ["policy", "/ best K", *columns, "worst", "/ no spec., worst"]
    head += ["recovered", "steps", "s", "s lost"] if changes else []
    rows = [_line(each, changes=changes, wide=wide) for each in condition.standings]
    text += _table(head, rows)
    ours = next((each for each in condition.standings if each.policy == OURS), None)
    if ours is not None and ours.worst is not None:
        text += f"\nWorst cell of `{OURS}`: {ours.worst[0]:.3f} at {where(ours.worst[1])}.\n"
    if wide and ours is not None:
        pairs = zip(condition.columns, ours.by_column, strict=True)
        shown = ", ".join(f"{name} {_ratio(value)}" for name, value in pairs)
        text += f"`{OURS}` by load: {shown}.\n"
    return text


def _line(standing: Standing, *, changes: bool, wide: bool) -> tuple[str, ...]:
    name = f"**{standing.policy}**" if standing.policy == OURS else standing.policy
    cells = [name, _ratio(standing.of_best_static)]
    cells += [] if wide else [_ratio(value) for value in standing.by_column]
    cells.append(_ratio(standing.worst[0] if standing.worst else None))
    cells.append(_ratio(standing.worst_of_no_speculation))
    if changes:
        found = standing.recoveries
        if found is None:
            cells += ["", "", "", ""]
        else:
            cells.append(f"{found.recovered} of {found.changes}")
            cells += [_number(found.steps), _number(found.seconds), _number(found.lost_seconds)]
    return tuple(cells)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    lines = [head, rule, *rows]
    return "\n".join("| " + " | ".join(_escaped(line)) + " |" for line in lines) + "\n"


def _escaped(cells: Sequence[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in cells]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("." if text and not text.endswith(".") else "")


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"
