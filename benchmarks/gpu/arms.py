"""What is compared: an engine, and how it is set for a cell.

none           no speculation
staticK        vLLM with this K (0 included), by its own schedule of K by batch size
schedule       vLLM's schedule, tuned from the static K measured before
ours-cold      adaptive-spec that has learned nothing yet
ours           adaptive-spec as the cells before have left it
ours-off       adaptive-spec with speculation off
fixedK         adaptive-spec with this K
ladder         adaptive-spec with one K per batch, of the captured ladder
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .setups import NONE

GOODPUT: dict[str, Any] = {"mode": "on", "policy": "goodput"}
OFF: dict[str, Any] = {"mode": "on", "policy": "off"}
NAME = re.compile(r"none|schedule|ours|ours-cold|ours-off|ladder|(static|fixed)(\d+)")

Table = list[tuple[int, int, int]]
"""vLLM's schedule: first and last batch size, K."""


@dataclass(frozen=True)
class Arm:
    """How an arm is run.

    Attributes:
        engine: its key.
        static: K of vLLM's schedule for every batch size; None without.
        scheduled: K follows a tuned schedule.
        switch: what our run-time switch is told; None without our plugin.
        fresh: the policy begins anew.
    """

    engine: str
    static: int | None = None
    scheduled: bool = False
    switch: Mapping[str, Any] | None = None
    fresh: bool = False


def arm(name: str, method: str) -> Arm:
    """The arm of a name. Raises ValueError for an unknown one."""
    match = NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no arm: see benchmarks/gpu/arms.py")
    family, k = match.groups()

    def engine(kind: str) -> str:
        return f"{method}-{kind}"

    match family or name:
        case "none":
            return Arm(NONE)
        case "static":
            return Arm(engine("vllm"), static=int(k))
        case "schedule":
            return Arm(engine("vllm"), scheduled=True)
        case "fixed":
            switch = {"mode": "on", "policy": "static", "options": {"k": int(k)}}
            return Arm(engine("ours"), switch=switch)
        case "ours-off":
            return Arm(engine("ours"), switch=OFF)
        case "ours-cold":
            return Arm(engine("ours"), switch=GOODPUT, fresh=True)
        case "ours":
            return Arm(engine("ours"), switch=GOODPUT)
        case kind:
            return Arm(engine(kind), switch=GOODPUT)


def tuned_schedule(
    rates: Mapping[int, Mapping[int, Iterable[float]]], max_num_seqs: int
) -> Table | None:
    """vLLM's schedule with the best static K of each load, from that load up to the next.

    Args:
        rates: tokens per second by load and K.
        max_num_seqs: where the table ends.

    Returns:
        None without any rate.
    """
    best: dict[int, int] = {}
    for load, of_k in rates.items():
        means = {k: sum(found) / len(found) for k, some in of_k.items() if (found := list(some))}
        if means:
            best[load] = max(means, key=lambda k: means[k])
    loads = sorted(best)
    if not loads:
        return None
    firsts = [1, *loads[1:]]
    lasts = [first - 1 for first in firsts[1:]] + [max(max_num_seqs, loads[-1])]
    return [
        (first, last, best[load]) for first, last, load in zip(firsts, lasts, loads, strict=True)
    ]
