"""The tables of docs/measured.md, from the cells; its text is written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import mean, stdev

from .arms import BOTH, GOODPUT, NONE, SGLANG_LIST, SGLANG_RULE, STATIC, TABLE, warm
from .cells import Cell, Figures, SimulatedRow, published, simulated
from benchmarks.judge.device import device
from .pictures import by_load
from .setup import ROOT
from .sweep import POLICIES

WARM = warm(GOODPUT)
NAMES = {
    "draft_model": "draft model",
    "draft_poor": "poor draft model",
    "mtp": "MTP",
    "eagle": "EAGLE",
    "eagle3": "EAGLE-3",
    "ngram": "n-gram",
    "suffix": "suffix",
}
PICTURE = ROOT / "docs" / "images" / "measured.svg"
Column = tuple[str, Callable[[Cell], str | float | None]]
"""Head, and what stands below it: text, or a ratio where its arms were run."""


def _over(arm: str, other: str) -> Callable[[Cell], float | None]:
    return lambda cell: cell.over(arm, other) if {arm, other} <= cell.arms.keys() else None


def _over_best(arm: str) -> Callable[[Cell], float | None]:
    return lambda cell: cell.over_best(arm) if arm in cell.arms else None


def _of_warm(shown: Callable[[Figures], str]) -> Callable[[Cell], str]:
    return lambda cell: shown(cell.arms[WARM]) if WARM in cell.arms else ""


def _off_cold(figures: Figures) -> str:
    return f"{100 * figures.off_cold:.0f} %"


def _best(cell: Cell) -> str:
    over_none = cell.over(cell.best_k, NONE) if NONE in cell.arms else math.nan
    return f"{cell.best_k}: {over_none:.3f}"


DRAFTER: Column = ("drafter", lambda cell: NAMES[cell.key.method])
DEVICE: Column = ("device", lambda cell: device(cell.device).title)
CLIENTS: Column = ("clients", lambda cell: cell.key.load)
LOAD: Column = ("load", CLIENTS[1])
KIND: Column = ("text", lambda cell: cell.key.kind)
BEST: Column = ("best static K: over none", _best)
COLD_BEST: Column = ("cold / best", _over_best(GOODPUT))
WARM_BEST: Column = ("warm / best", _over_best(WARM))
COLD_NONE: Column = ("cold / none", _over(GOODPUT, NONE))
WARM_NONE: Column = ("warm / none", _over(WARM, NONE))
WARM_TABLE: Column = ("warm / table", _over(WARM, TABLE))
MEAN_K: Column = ("mean K", _of_warm(lambda figures: f"{figures.verified:.1f}"))
OFF_COLD: Column = ("OFF-cold", _of_warm(_off_cold))
RATIOS = (BEST, COLD_BEST, WARM_BEST, WARM_NONE)
PLAIN = (DRAFTER, DEVICE, CLIENTS, *RATIOS)
SGLANG_RULES: tuple[Column, ...] = (
    ("SGLang's rule / best", _over_best(SGLANG_RULE)),
    ("its rule, one list / best", _over_best(SGLANG_LIST)),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "no-gain": (CLIENTS, BEST, COLD_NONE, WARM_NONE, OFF_COLD),
    "granularity": (
        CLIENTS,
        ("K per request", _over_best(WARM)),
        ("history", _over_best(warm("history"))),
        ("one K", _over_best(warm("one-k"))),
    ),
    "graphs": (
        DRAFTER,
        DEVICE,
        CLIENTS,
        ("cold", _over("varlen", "ladder")),
        ("warm", _over(warm("varlen"), warm("ladder"))),
    ),
    "ramp": (DRAFTER, BEST, COLD_BEST, COLD_NONE),
    "arrivals": (DRAFTER, LOAD, BEST, COLD_BEST, WARM_BEST, COLD_NONE, WARM_NONE),
    "policies": (CLIENTS, *((n, _over_best(warm(f"policy:{n}"))) for n in POLICIES)),
    "eagle": PLAIN,
    "suffix": PLAIN,
    "async": PLAIN,
    "v2": PLAIN,
    "kinds": (DRAFTER, KIND, *RATIOS),
    "devices": PLAIN,
    "sglang": PLAIN,
    "sglang-eagle": (*PLAIN[1:4], *SGLANG_RULES, *PLAIN[4:]),
}
"""Columns of the table of a section."""


def tables() -> dict[str, str]:
    """Every table of the page by the name of its section; those of `main` by device.

    A section that has not been run has none.
    """
    found = published()
    main = [cell for cell in found if cell.section == "main"]
    shown = {"short": _short(main)}
    columns = (DRAFTER, CLIENTS, BEST, COLD_BEST, WARM_BEST, WARM_NONE, WARM_TABLE, MEAN_K)
    for name in dict.fromkeys(cell.device for cell in main):
        shown[name] = _rows([cell for cell in main if cell.device == name], columns)
    for name, columns in TABLES.items():
        if cells := [cell for cell in found if cell.section == name]:
            shown[name] = _rows(cells, columns)
    shown["sampled"] = _sampled([cell for cell in found if cell.section == "sampled"])
    shown["two-sources"] = _two_sources(found)
    shown["simulated"] = _simulated(simulated())
    return shown


def write_picture() -> None:
    """Draw the cells of `main`."""
    cells = [cell for cell in published() if cell.section == "main"]
    svg = by_load(cells, lambda name: device(name).title, NAMES)
    PICTURE.write_text(svg, encoding="utf-8")


def terminal_table(found: Iterable[Cell]) -> str:
    """A row for each cell."""
    section: Column = ("section", lambda cell: cell.section)
    static = [cell for cell in found if any(arm in cell.arms for arm in STATIC)]
    other: Column = ("other tokens", lambda cell: f"{cell.different or ''}")
    ratios = (COLD_BEST, WARM_BEST, COLD_NONE, WARM_NONE, WARM_TABLE, other)
    return _rows(static, (section, *PLAIN[:3], KIND, BEST, *ratios))


def _short(main: Sequence[Cell]) -> str:
    bars = (
        ("best static K, cold", COLD_BEST),
        ("best static K, warm", WARM_BEST),
        ("no speculation, cold", COLD_NONE),
        ("no speculation, warm", WARM_NONE),
        ("vLLM's table, tuned on the same cells, warm", WARM_TABLE),
    )
    names = list(dict.fromkeys(cell.device for cell in main))
    lines = []
    for title, (_, ratio) in bars:
        by_device = ([ratio(c) for c in main if c.device == name] for name in names)
        known = [[r for r in ratios if isinstance(r, float)] for ratios in by_device]
        lines.append([title, *(f"{_summary(each)} ({len(each)} cells)" for each in known)])
    return _table(["adaptive-spec over", *(device(name).title for name in names)], lines)


def _rows(cells: Sequence[Cell], columns: Sequence[Column]) -> str:
    """A row for each cell; below many of them their geometric mean, and the worst."""
    values = [[value(cell) for _, value in columns] for cell in cells]
    lines = [[v if isinstance(v, str) else _number(v) for v in row] for row in values]
    if len(cells) > 3:
        ratios = [
            [v for v in column if isinstance(v, float)] for column in zip(*values, strict=True)
        ]
        lines.append(["mean", *(_summary(each) for each in ratios[1:])])
    return _table([head for head, _ in columns], lines)


def _sampled(cells: Sequence[Cell]) -> str:
    """Mean and standard deviation over the seeds; the best K is that of their mean."""
    lines = []
    for load in dict.fromkeys(cell.key.load for cell in cells):
        same = [cell for cell in cells if cell.key.load == load]
        static = [arm for arm in STATIC if arm in same[0].arms]
        best = max(static, key=lambda arm: mean(c.arms[arm].steady for c in same))
        pairs = (best, NONE), (GOODPUT, best), (WARM, best), (WARM, NONE)
        values = [[cell.over(*pair) for cell in same] for pair in pairs]
        shown = [f"{mean(each):.3f} ± {stdev(each):.3f}" for each in values]
        lines.append([load, f"{best}: {shown[0]}", *shown[1:]])
    return _table(["clients", *(head for head, _ in RATIOS)], lines)


def _two_sources(found: Sequence[Cell]) -> str:
    alone = {
        (cell.key.load, cell.key.kind): cell.arms
        for cell in found
        if cell.section == "suffix-alone"
    }
    lines = []
    for cell in (cell for cell in found if cell.section == "two-sources"):
        suffix = alone[cell.key.load, cell.key.kind]
        # The head alone may not have been run, where look-ups are far better.
        head = {arm: figures.whole for arm, figures in cell.arms.items()}
        rates = [head.get(WARM, 0.0), suffix[WARM].whole, head[warm(BOTH)]]
        cold = head[BOTH] / max(head.get(GOODPUT, 0.0), suffix[GOODPUT].whole)
        ratios = [_number(cold), _number(rates[2] / max(rates[:2]))]
        off = _off_cold(cell.arms[warm(BOTH)])
        shown = [f"{rate:,.0f}" if rate else "" for rate in rates]
        lines.append([cell.key.kind, cell.key.load.split()[0], *shown, *ratios, off])
    heads = ["text", "clients", "MTP", "suffix", "both", "cold / better", "warm / better"]
    return _table([*heads, "OFF-cold"], lines)


def _simulated(rows: Sequence[SimulatedRow]) -> str:
    arms = list(dict.fromkeys(row.arm for row in rows))
    lines = []
    for name, clients in dict.fromkeys((row.device, row.clients) for row in rows):
        errors = {r.arm: r.error for r in rows if (r.device, r.clients) == (name, clients)}
        shown = [f"{100 * errors[arm]:+.1f} %" if arm in errors else "" for arm in arms]
        lines.append([device(name).title, str(clients), *shown])
    return _table(["device", "clients", *arms], lines)


def _summary(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    return f"{math.exp(mean(map(math.log, ratios))):.3f}, worst {min(ratios):.3f}"


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines: Iterator[Sequence[str]] = iter([heads, ["---"] * len(heads), *rows])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
