"""The tables of docs/measured.md and of README, from `results`; the text is written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import mean, stdev

from .arms import (
    GOODPUT,
    NONE,
    OTHERS,
    SGLANG_RULE,
    TABLE_CELL,
    TABLE_CONSTANT,
    TIERS,
    parse_arm,
)
from .cells import LATER
from .engines import SGLANG, VLLM
from .figures import markdown
from .real import comparison
from .results import CellFigures, published

WARM, COLD = f"{GOODPUT} warm", f"{GOODPUT} cold"
METHODS = {"eagle": "EAGLE", "ngram": "n-gram", "draft_model": "draft model"}
ABLATIONS = (
    "history",
    "one-k",
    "ladder",
    "no-cold",
    "bandit",
    "regression",
    "both",
    "oracle",
)
Ratios = list[float]
HEADS = ("cell", "best: over none", "/best", "/none", "cold 300", "/table", "/constant", "/tiers")


def tables() -> dict[str, str]:
    """Every table of the page by the name of its section."""
    everything = published()
    found = [cell for cell in everything if cell.engine == VLLM]
    main = _of_means(found)
    shown = {
        "wrong-k": _wrong_k([c for c in main if c.group == "bursts and ramps"]),
        "groups": _groups(main),
        "others": _others(main),
        "ablations": _ablations(found),
        "later": _further(_never_tuned_on(found)),
        "extra": _further([c for c in found if c.extra]),
        "against-real": comparison.table(comparison.published()),
        "sglang": _sglang([cell for cell in everything if cell.engine == SGLANG]),
    }
    for group in dict.fromkeys(cell.group for cell in main):
        same = [cell for cell in main if cell.group == group]
        shown[group.replace(":", "").replace(" ", "-")] = _cells(same)
    return shown


def readme_table() -> str:
    """Means and worst cells of constant, changing and noisy traffic, and of what came later."""
    everything = [cell for cell in published() if cell.engine == VLLM]
    found = _of_means(everything)
    named = {"constant": "constant load", "noise and cold": "noisy step times"}
    kinds: dict[str, list[CellFigures]] = {}
    for title in ("constant load", "changing traffic", "noisy step times"):
        kinds[title] = [c for c in found if named.get(c.group, "changing traffic") == title]
    kinds["never tuned on"] = _never_tuned_on(everything)
    rows: list[tuple[str, Callable[[CellFigures], float | None]]] = [
        ("over the best fixed K, picked with hindsight", _over_best),
        ("the same, with the plugin's own CPU time charged", _charged),
        ("over K = 3, as many recipes ship", lambda c: _over(c, WARM, "k3")),
        ("over K = 5, likewise", lambda c: _over(c, WARM, "k5")),
        ("over no speculation", _over_none),
        ("over vLLM's batch-size table, tuned on constant loads", _over_constant),
        ("over SGLang's tiers of batch sizes", lambda c: _over(c, WARM, TIERS)),
        ("first 300 steps from a cold start, over the best fixed K", _cold),
    ]
    heads = ["mean, worst cell", *(f"{title} ({len(cells)})" for title, cells in kinds.items())]
    lines = []
    for title, ratio in rows:
        line = [title]
        for cells in kinds.values():
            values = [value for cell in cells if (value := ratio(cell)) is not None]
            both = f"{_percent(_geometric(values))}, {_percent(min(values))}" if values else ""
            line.append(both)
        lines.append(line)
    return markdown(heads, lines)


def terminal_table(cells: Sequence[CellFigures], arms: Sequence[str]) -> str:
    """Rows of each learning arm by cell, and the geometric mean and the worst of each group."""
    lines: list[str] = []
    learning = [arm for arm in arms if not arm.startswith("table-") and parse_arm(arm).learns]
    for arm in learning or [GOODPUT]:
        lines.append(f"\n{arm}, warm, over the best static K, none, tables and tiers")
        lines.append(_line(HEADS))
        for group in dict.fromkeys(cell.group for cell in cells):
            lines.append(f"{group}:")
            rows = []
            for cell in (cell for cell in cells if cell.group == group):
                rule = SGLANG_RULE if cell.engine == SGLANG else TIERS
                warm, tables = f"{arm} warm", (TABLE_CELL, TABLE_CONSTANT, rule)
                over_best, over_none = (_over(cell, warm, other) for other in (cell.best, NONE))
                over_tables = [_over(cell, warm, other) for other in tables]
                rows.append([over_best, over_none, _cold(cell, f"{arm} cold"), *over_tables])
                best = _over(cell, cell.best, NONE)
                shown = f"{cell.best}: {best:.3f}" if best else cell.best
                lines.append(_line([cell.name, shown, *map(_number, rows[-1])]))
            columns = [[v for v in column if v is not None] for column in zip(*rows, strict=True)]
            means = [_number(_geometric(column)) if column else "" for column in columns]
            lines.append(_line(["  mean", "", *means]))
            worst = [_number(min(column, default=None)) for column in columns]
            lines.append(_line(["  worst", "", *worst]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"{cells[0]:58} {cells[1]:>15} " + " ".join(f"{cell:>9}" for cell in cells[2:])


def _of_means(found: Iterable[CellFigures]) -> list[CellFigures]:
    """Cells of the groups that were fixed before anything was tuned; no later ones."""
    return [cell for cell in found if not cell.extra and not cell.group.startswith(LATER)]


def _never_tuned_on(found: Iterable[CellFigures]) -> list[CellFigures]:
    """Cells of the groups that were fixed and run once the policy was done."""
    return [cell for cell in found if not cell.extra and cell.group.startswith(LATER)]


def _over(cell: CellFigures, arm: str, other: str) -> float | None:
    ratios = cell.over(arm, other)
    return mean(ratios) if ratios else None


def _over_none(cell: CellFigures) -> float | None:
    return _over(cell, WARM, NONE)


def _over_best(cell: CellFigures) -> float | None:
    return _over(cell, WARM, cell.best)


def _over_constant(cell: CellFigures) -> float | None:
    return _over(cell, WARM, TABLE_CONSTANT)


def _cold(cell: CellFigures, arm: str = COLD) -> float | None:
    cold = cell.arms[arm].cold if arm in cell.arms else []
    return mean(cold) if cold else None


def _charged(cell: CellFigures) -> float | None:
    ratios = cell.over(WARM, cell.best, charge=True)
    return mean(ratios) if ratios else None


def _wrong_k(cells: Sequence[CellFigures]) -> str:
    """Each arm over the best static K of the cell."""
    arms = [NONE, *(cells[0].static if cells else ()), TABLE_CONSTANT, TIERS, COLD, WARM]
    titles = [arm if arm in (COLD, WARM) else parse_title(arm) for arm in arms]
    lines = [[cell.name, *(_number(_over(cell, arm, cell.best)) for arm in arms)] for cell in cells]
    worst = [
        min((value for cell in cells if (value := _over(cell, arm, cell.best))), default=None)
        for arm in arms
    ]
    return markdown(["over the best fixed K", *titles], [*lines, ["worst", *map(_number, worst)]])


def parse_title(arm: str) -> str:
    """A short head of a column."""
    heads = {TABLE_CONSTANT: "vLLM's table", TIERS: "SGLang's tiers", NONE: "none"}
    return heads.get(arm) or f"K = {parse_arm(arm).k}"


def _groups(cells: Sequence[CellFigures]) -> str:
    columns = (
        ("over none", _over_none),
        ("over the best fixed K", _over_best),
        ("with CPU", _charged),
        ("first 300 steps, cold", _cold),
        ("over a table tuned on the cell", lambda c: _over(c, WARM, TABLE_CELL)),
        ("on constant loads", _over_constant),
        ("over SGLang's tiers", lambda c: _over(c, WARM, TIERS)),
    )
    lines, means = [], list[list[float]]()
    names = list(dict.fromkeys(cell.group for cell in cells))
    for group in names:
        same = [cell for cell in cells if cell.group == group]
        line, row = [f"{group} ({len(same)})"], list[float]()
        for _, ratio in columns:
            values = [value for cell in same if (value := ratio(cell)) is not None]
            line.append(_summary(values))
            row.append(_geometric(values) if values else math.nan)
        means.append(row)
        worst = min(same, key=lambda c: _over_best(c) or math.inf)
        lines.append([*line, worst.name])
    overall = [
        _number(_geometric(known)) if (known := [v for v in column if v == v]) else ""
        for column in zip(*means, strict=True)
    ]
    lines.append(["all groups, equal weight", *overall, ""])
    heads = ["traffic (cells)", *(head for head, _ in columns), "worst cell over the best fixed K"]
    return markdown(heads, lines)


def _further(cells: Sequence[CellFigures]) -> str:
    """A row for each group: mean and worst over no speculation and over the best fixed K."""
    lines = []
    for group in dict.fromkeys(cell.group for cell in cells):
        same = [cell for cell in cells if cell.group == group]
        line = [f"{group.removeprefix(f'{LATER}: ')} ({len(same)})"]
        for ratio in (_over_none, _over_best, _cold):
            line.append(_summary([value for cell in same if (value := ratio(cell)) is not None]))
        lines.append(line)
    heads = ["traffic (cells)", "over none", "over the best fixed K", "first 300 steps, cold"]
    return markdown(heads, lines)


def _cells(cells: Sequence[CellFigures]) -> str:
    arrivals = any(cell.measure == "tpot" for cell in cells)
    heads = ["cell", "best fixed K: over none", "over it", "spread", "with CPU", "cold 300"]
    heads += ["over none", "table", "constant", "tiers"]
    heads += ["first token"] if arrivals else []
    lines = []
    for cell in cells:
        if WARM not in cell.arms:
            continue
        own = cell.over(WARM, cell.best)
        over_none = _over(cell, cell.best, NONE)
        line = [
            cell.name,
            f"{cell.best[1:]}: {over_none:.3f}" if over_none else cell.best[1:],
            _number(mean(own)),
            f"± {stdev(own):.3f}" if len(own) > 1 else "",
            _number(_charged(cell)),
            _number(_cold(cell)),
            *(_number(_over(cell, WARM, a)) for a in (NONE, TABLE_CELL, TABLE_CONSTANT, TIERS)),
        ]
        if arrivals:
            mine, theirs = cell.arms[WARM].first_token, cell.arms[cell.best].first_token
            line.append(_number(mean(mine) / mean(theirs)) if mine and theirs else "")
        lines.append(line)
    return markdown(heads, lines) if lines else "Not run."


def _sglang(cells: Sequence[CellFigures]) -> str:
    """Cells on SGLang's scheduler, and their geometric means and worst."""
    ratios: list[tuple[str, Callable[[CellFigures], float | None]]] = [
        ("best fixed K: over none", lambda c: _over(c, c.best, NONE)),
        ("over it", lambda c: _over(c, WARM, c.best)),
        ("cold 300", _cold),
        ("over none", _over_none),
        ("SGLang's rule: over none", lambda c: _over(c, SGLANG_RULE, NONE)),
        ("over it", lambda c: _over(c, WARM, SGLANG_RULE)),
    ]
    lines, columns = [], list[Ratios]([] for _ in ratios)
    for cell in sorted(cells, key=lambda cell: cell.extra):
        values = [ratio(cell) for _, ratio in ratios]
        for column, value in zip(columns, values, strict=True):
            column += [] if value is None else [value]
        first, *rest = map(_number, values)
        name = cell.name.removeprefix(f"{SGLANG} ")
        lines.append([name, f"{cell.best[1:]}: {first}", *rest])
    lines.append(["mean", *(_number(_geometric(c)) if c else "" for c in columns)])
    lines.append(["worst", *(_number(min(c, default=None)) for c in columns)])
    heads = ["cell", *(head for head, _ in ratios)]
    return markdown(heads, lines) if cells else "Not run."


def _others(cells: Sequence[CellFigures]) -> str:
    """`goodput`, warm and cold, over each rule of others in the cells in which both were run."""
    lines = []
    for arm in OTHERS:
        warm, cold = (
            [value for cell in cells if (value := _over(cell, part, arm)) is not None]
            for part in (WARM, COLD)
        )
        if warm:
            title = "vLLM's table" if arm == TABLE_CONSTANT else parse_arm(arm).title
            lines.append([title, str(len(warm)), _summary(warm), _summary(cold)])
    return markdown(["adaptive-spec over", "cells", "warm", "from a cold start"], lines)


def _ablations(cells: Sequence[CellFigures]) -> str:
    """Each arm over `goodput`, both warm, over all cells in which both were run and differ."""
    lines = []
    for arm in ABLATIONS:
        name = arm if arm == "oracle" else f"{arm} warm"
        values = [
            value
            for cell in cells
            if (value := _over(cell, name, WARM)) is not None
            and cell.over(name, WARM) != [1.0]  # else it is the same run
            and (arm != "both" or "two sources" in cell.name)
        ]
        if values:
            title = parse_arm(arm).title
            lines.append([title, str(len(values)), _summary(values), f"{max(values):.3f}"])
    return markdown(["arm over adaptive-spec", "cells", "mean, worst", "best"], lines)


def _geometric(ratios: Iterable[float]) -> float:
    return math.exp(mean(map(math.log, ratios)))


def _summary(ratios: Ratios) -> str:
    return f"{_geometric(ratios):.3f}, worst {min(ratios):.3f}" if ratios else ""


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
