"""The bars that a run is held against, each with what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any

import msgspec

LEAST_OF_BEST = 0.98
LEAST_OFF = 0.98
MOST_START_SECONDS = 60.0
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
    ours = [row for row in sweep if row["arm"] == "ours"]
    return [
        _least(ours, "over_best_static", "ours over the best static K", LEAST_OF_BEST),
        _least(ours, "over_none", "ours over no speculation", LEAST_OF_BEST),
        _schedule(ours),
        _off(summary, method),
        _start(summary, method),
        _graphs(summary, method),
        _lossless(summary, method),
        _synchronisations(summary, method),
    ]


def _least(rows: Sequence[Mapping[str, Any]], name: str, question: str, least: float) -> Bar:
    wanted = f"at least {least} at every load"
    found = [row for row in rows if row[name] is not None]
    if not found:
        return Bar(question, wanted, "not measured", None)
    worst = min(found, key=lambda row: float(row[name]["middle"]))
    ratio = worst[name]["middle"]
    where = f"{worst['load']} clients, T = {worst['temperature']:g}"
    return Bar(question, wanted, f"lowest {ratio:.3f}, at {where}", bool(ratio >= least))


def _schedule(rows: Sequence[Mapping[str, Any]]) -> Bar:
    question, wanted = "ours over vLLM's tuned schedule", "above 1 on average"
    ratios = [row["over"]["schedule"]["middle"] for row in rows if row["over"].get("schedule")]
    if not ratios:
        return Bar(question, wanted, "not measured", None)
    average = geometric_mean(ratios)
    return Bar(question, wanted, f"{average:.3f} over {len(ratios)} loads", average > 1.0)


def _off(summary: Mapping[str, Any], method: str) -> Bar:
    rows = [
        row
        for row in summary.get("overhead", ())
        if row["arm"] == "ours-off" and row["method"] == method
    ]
    return _least(rows, "over_none", "ours switched off over no speculation", LEAST_OFF)


def _start(summary: Mapping[str, Any], method: str) -> Bar:
    question = "start-up with the ladder's graphs over start-up without"
    wanted = f"less than {MOST_START_SECONDS:.0f} s more"
    captures = summary.get("capture", {})
    with_ladder = captures.get(f"{method}-ours")
    without = next(
        (row for key, row in captures.items() if key.startswith(f"{method}-k")),
        None,
    )
    if with_ladder is None or without is None:
        return Bar(question, wanted, "not measured", None)
    seconds = with_ladder["seconds"] - without["seconds"]
    size = with_ladder["gib"] - without["gib"]
    return Bar(
        question,
        wanted,
        f"{seconds:+.0f} s and {size:+.2f} GiB of graphs",
        seconds < MOST_START_SECONDS,
    )


def _graphs(summary: Mapping[str, Any], method: str) -> Bar:
    question, wanted = "decode steps of every rung in a full graph", "all that fit a captured size"
    sizes = summary.get("engine", {}).get(f"{method}-ours", {}).get("capture_sizes", ())
    full = total = 0
    for key, rows in summary.get("graphs", {}).items():
        for row in rows if key.startswith(f"{method}/") else ():
            if row["batch"] * (1 + row["k"]) <= max(sizes, default=0):
                full += row["graphs"].get("FULL", 0)
                total += sum(row["graphs"].values())
    if not total:
        return Bar(question, wanted, "not measured", None)
    return Bar(question, wanted, f"{full} of {total} steps", full == total)


def _lossless(summary: Mapping[str, Any], method: str) -> Bar:
    question = "greedy tokens while K changes every step are the target's own"
    wanted = f"none further than {LARGEST_GAP} nats from its best"
    row = summary.get("identity", {}).get(method, {}).get("drawn K")
    if row is None:
        return Bar(question, wanted, "not measured", None)
    measured = (
        f"largest gap {row['largest_gap_nats']:.3f}; "
        f"{row['identical']} of {row['answers']} answers identical"
    )
    return Bar(question, wanted, measured, row["largest_gap_nats"] <= LARGEST_GAP)


def _synchronisations(summary: Mapping[str, Any], method: str) -> Bar:
    question, wanted = "waits for the GPU that reading confidence adds to a step", "none"
    calls = summary.get("calls", {})
    pair = [calls.get(f"{method}-{kind}") for kind in ("ragged", "quiet")]
    if None in pair or not pair[0]["calls_per_step"]:
        return Bar(question, wanted, "not measured", None)
    with_it, without = (row["synchronisations_per_step"] for row in pair)
    return Bar(question, wanted, f"{with_it:g} against {without:g}", with_it <= without)


def confidence_cost(summary: Mapping[str, Any], method: str) -> dict[int, float]:
    """Step time with confidence over without, by batch; the median of the repeats."""
    steps = summary.get("confidence-steps", {})
    ratios: dict[int, list[float]] = {}
    for key, rows in steps.items():
        engine, batch, repeat = key.split("/")
        other = steps.get(f"{method}-quiet/{batch}/{repeat}")
        if engine == f"{method}-ragged" and other:
            ratios.setdefault(int(batch), []).append(rows[0]["ms"] / other[0]["ms"])
    return {batch: round(median(some), 4) for batch, some in sorted(ratios.items())}
