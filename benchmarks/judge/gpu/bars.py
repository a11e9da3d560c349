"""The bars that a run is held against, each with what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

import msgspec

from ..arms import GOODPUT, TABLE_CONSTANT
from ..rows import WARM

LEAST_OF_BEST = 0.98
LEAST_OFF = 0.98
MOST_START_SECONDS = 60.0
MOST_VARLEN = 1.03
LARGEST_GAP = 0.25
"""Nats between the target's best token and an emitted one that bf16 rounding explains."""


class Bar(msgspec.Struct, frozen=True):
    """One question. `met` is None where nothing was measured."""

    question: str
    wanted: str
    measured: str
    met: bool | None


def bars(summary: Mapping[str, Any], method: str) -> list[Bar]:
    """The bars of a method."""
    sweep = [row for row in summary.get("sweep", ()) if row["method"] == method]
    ours, off = f"{GOODPUT} {WARM}", "off"
    return [
        _least(sweep, ours, "over_best_static", "ours over the best static K", LEAST_OF_BEST),
        _least(sweep, ours, "over_none", "ours over no speculation", LEAST_OF_BEST),
        _schedule([row for row in sweep if row["arm"] == ours]),
        _least(sweep, off, "over_none", "ours switched off over none", LEAST_OFF),
        _same_k(sweep),
        _start(summary, method),
        _graphs(summary, method, "varlen", "ours", "of any K"),
        _graphs(summary, method, "uniform", "ladder", "of every rung"),
        _varlen_time(summary, method),
        _lossless(summary, method, "drawn K", "every step"),
        _lossless(summary, method, "drawn K per request", "for every request"),
    ]


def _least(
    rows: Sequence[Mapping[str, Any]], arm: str, name: str, question: str, least: float
) -> Bar:
    wanted = f"at least {least} at every load"
    found = [row for row in rows if row["arm"] == arm and row[name] is not None]
    if not found:
        return Bar(question, wanted, "not measured", None)
    worst = min(found, key=lambda row: float(row[name].middle))
    ratio = worst[name].middle
    where = f"{worst['load']} clients, T = {worst['temperature']:g}"
    return Bar(question, wanted, f"lowest {ratio:.3f}, at {where}", bool(ratio >= least))


def _schedule(rows: Sequence[Mapping[str, Any]]) -> Bar:
    question, wanted = "ours over vLLM's tuned schedule", "above 1 on average"
    ratios = [each.middle for row in rows if (each := row["over"].get(TABLE_CONSTANT))]
    if not ratios:
        return Bar(question, wanted, "not measured", None)
    average = geometric_mean(ratios)
    return Bar(question, wanted, f"{average:.3f} over {len(ratios)} loads", average > 1.0)


def _same_k(rows: Sequence[Mapping[str, Any]]) -> Bar:
    """Our plugin with a fixed K over vLLM with the same K."""
    question = "ours at a fixed K over vLLM at that K"
    wanted = f"at least {LEAST_OFF} at every load"
    found = [
        (over.middle, row["load"])
        for row in rows
        if row["arm"].startswith("fixed")
        and (over := row["over"].get(row["arm"].replace("fixed", "k")))
    ]
    if not found:
        return Bar(question, wanted, "not measured", None)
    ratio, load = min(found)
    return Bar(question, wanted, f"lowest {ratio:.3f}, at {load} clients", ratio >= LEAST_OFF)


def _start(summary: Mapping[str, Any], method: str) -> Bar:
    """Capture of varlen graphs against that of vLLM's own, for the rungs of a ladder."""
    question = "capture of varlen graphs over capture of a ladder's"
    wanted = f"less than {MOST_START_SECONDS:.0f} s more"
    captures = summary.get("capture", {})
    pair = [captures.get(f"{method}-{kind}") for kind in ("ours", "ladder")]
    if None in pair:
        return Bar(question, wanted, "not measured", None)
    seconds, size = (pair[0][name] - pair[1][name] for name in ("seconds", "gib"))
    measured = f"{seconds:+.0f} s and {size:+.2f} GiB of graphs"
    return Bar(question, wanted, measured, seconds < MOST_START_SECONDS)


def _graphs(summary: Mapping[str, Any], method: str, kind: str, engine: str, title: str) -> Bar:
    question, wanted = f"decode steps {title} in a full graph", "all that fit a captured size"
    sizes = summary.get("engine", {}).get(f"{method}-{engine}", {}).get("capture_sizes", ())
    full = total = 0
    for key, rows in summary.get("graphs", {}).items():
        for row in rows if key.startswith(f"{method}/{kind}/") else ():
            if row["batch"] * (1 + row["k"]) <= max(sizes, default=0):
                full += row["graphs"].get("FULL", 0)
                total += sum(row["graphs"].values())
    if not total:
        return Bar(question, wanted, "not measured", None)
    return Bar(question, wanted, f"{full} of {total} steps", full == total)


def _varlen_time(summary: Mapping[str, Any], method: str) -> Bar:
    """Equal batches in varlen graphs over uniform ones: the same tokens, both in full graphs."""
    question = "step time of equal K in varlen over uniform graphs"
    wanted = f"at most {MOST_VARLEN} in the median"
    graphs = summary.get("graphs", {})
    ratios = []
    for key, rows in graphs.items():
        if not key.startswith(f"{method}/varlen/"):
            continue
        others = graphs.get(key.replace("/varlen/", "/uniform/"), ())
        uniform = {row["k"]: row["ms"] for row in others}
        ratios += [
            row["ms"] / uniform[row["k"]]
            for row in rows
            if row["k"] in uniform and row["depth"] is None and not row["ragged"]
        ]
    if not ratios:
        return Bar(question, wanted, "not measured", None)
    middle = median(ratios)
    measured = f"{middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    return Bar(question, wanted, measured, middle <= MOST_VARLEN)


def _lossless(summary: Mapping[str, Any], method: str, arm: str, title: str) -> Bar:
    question = f"greedy tokens while K changes {title} are the target's own"
    wanted = f"none further than {LARGEST_GAP} nats from its best"
    row = summary.get("identity", {}).get(method, {}).get(arm)
    if row is None:
        return Bar(question, wanted, "not measured", None)
    measured = (
        f"largest gap {row['largest_gap_nats']:.3f}; "
        f"{row['identical']} of {row['answers']} answers identical"
    )
    return Bar(question, wanted, measured, row["largest_gap_nats"] <= LARGEST_GAP)
