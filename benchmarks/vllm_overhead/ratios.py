"""Medians of paired ratios with their intervals, and the table. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

PLAIN, ADAPTER, CONFIDENCE, DECIDING = "vllm", "adapter", "confidence", "deciding"
TITLES = {
    PLAIN: "vLLM alone, static K",
    ADAPTER: "adapter, policy static",
    CONFIDENCE: "adapter, static, confidence of every step",
    DECIDING: "the same, goodput in shadow mode",
}
PAIRS = ((ADAPTER, PLAIN), (CONFIDENCE, ADAPTER), (CONFIDENCE, PLAIN), (DECIDING, PLAIN))


class Block(msgspec.Struct, frozen=True):
    """A few consecutive steps of an arm: medians of a step, in seconds.

    Attributes:
        seconds: of the step, by the clock; processor: in CPU time.
        own: of it in our code, by the clock; own_processor: in CPU time.
        parts: our code's, by function, by the clock.
    """

    seconds: float
    processor: float
    own: float
    own_processor: float
    parts: dict[str, float]


Cycle = Mapping[str, Block]
"""A block of each arm, in whatever order they ran."""


class Estimate(msgspec.Struct, frozen=True):
    """A median and its interval; both ends nan if there are too few values for one."""

    middle: float
    low: float
    high: float
    count: int


def median_interval(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Median with a confidence interval that assumes no distribution.

    Between two order statistics: by the binomial law of how many values are below the median
    (e.g. Conover, Practical Nonparametric Statistics, 3.2). Raises ValueError without values.
    """
    if not values:
        raise ValueError("no values")
    ordered, count = sorted(values), len(values)
    outside = (1.0 - level) / 2.0
    tail, rank = 0.0, 0  # the chance of fewer than rank + 1 values below the median
    while True:
        tail += math.comb(count, rank) * 0.5**count
        if tail > outside:
            break
        rank += 1
    if rank == 0:
        return Estimate(median(ordered), math.nan, math.nan, count)
    return Estimate(median(ordered), ordered[rank - 1], ordered[count - rank], count)


def ratios(cycles: Sequence[Cycle], arm: str, base: str, clock: str) -> Estimate:
    """One arm's steps over another's, paired by cycle; `clock`: seconds or processor."""
    return median_interval(
        [getattr(cycle[arm], clock) / getattr(cycle[base], clock) for cycle in cycles]
    )


def shares(cycles: Sequence[Cycle], arm: str, clock: str) -> Estimate:
    """Our code's share of the step; `clock`: seconds or processor."""
    own = {"seconds": "own", "processor": "own_processor"}[clock]
    return median_interval(
        [getattr(cycle[arm], own) / getattr(cycle[arm], clock) for cycle in cycles]
    )


def parts(cycles: Sequence[Cycle], arm: str) -> dict[str, float]:
    """Median seconds of a step by function of ours, the longest first."""
    names = {name for cycle in cycles for name in cycle[arm].parts}
    found = {name: median(cycle[arm].parts.get(name, 0.0) for cycle in cycles) for name in names}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def text(title: str, cycles: Sequence[Cycle]) -> str:
    """The table of a condition, for people."""
    step = median(cycle[PLAIN].seconds for cycle in cycles)
    lines = [f"{title}: step {1e3 * step:.1f} ms without adaptive-spec, {len(cycles)} cycles", ""]
    lines.append(f"{'own code, share of the step':44}  {'by the clock':>24}  {'CPU time':>24}")
    for arm in (ADAPTER, CONFIDENCE, DECIDING):
        both = [percent(shares(cycles, arm, clock)) for clock in ("seconds", "processor")]
        lines.append(f"{TITLES[arm]:44}  {both[0]:>24}  {both[1]:>24}")
    lines += ["", f"{'step over step':44}  {'by the clock':>24}  {'CPU time':>24}"]
    for arm, base in PAIRS:
        both = [times(ratios(cycles, arm, base, clock)) for clock in ("seconds", "processor")]
        lines.append(f"{f'{arm} / {base}':44}  {both[0]:>24}  {both[1]:>24}")
    lines += ["", "our code by function, microseconds of a step:"]
    for arm in (CONFIDENCE, DECIDING):
        shown = [f"{name} {1e6 * seconds:.0f}" for name, seconds in parts(cycles, arm).items()]
        lines.append(f"  {arm}: " + ", ".join(shown))
    return "\n".join(lines) + "\n"


def as_json(cycles: Sequence[Cycle]) -> dict[str, Any]:
    """Estimates and every cycle."""
    clocks = ("seconds", "processor")
    return {
        "own_code_share": {
            arm: {clock: rounded(shares(cycles, arm, clock)) for clock in clocks}
            for arm in (ADAPTER, CONFIDENCE, DECIDING)
        },
        "step_ratio": {
            f"{arm}/{base}": {clock: rounded(ratios(cycles, arm, base, clock)) for clock in clocks}
            for arm, base in PAIRS
        },
        "own_code_seconds": {
            arm: {name: round(seconds, 7) for name, seconds in parts(cycles, arm).items()}
            for arm in (ADAPTER, CONFIDENCE, DECIDING)
        },
        "cycles": [
            {
                arm: [round(value, 6) for value in (b.seconds, b.processor, b.own, b.own_processor)]
                for arm, b in cycle.items()
            }
            for cycle in cycles
        ],
    }


def rounded(estimate: Estimate) -> list[float | None]:
    """Median, low, high; None for nan, which JSON doesn't have."""
    values = (estimate.middle, estimate.low, estimate.high)
    return [None if math.isnan(value) else round(value, 6) for value in values]


def percent(estimate: Estimate) -> str:
    values = (estimate.middle, estimate.low, estimate.high)
    middle, low, high = (f"{100 * value:.3f}" for value in values)
    return f"{middle} % ({low}–{high})"


def times(estimate: Estimate) -> str:
    return f"{estimate.middle:.4f} ({estimate.low:.4f}–{estimate.high:.4f})"
