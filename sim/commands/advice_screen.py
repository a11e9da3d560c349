"""Advice as tables and sentences on a console, which the HTML page records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_spec.sim.advice.setups import NO_SPECULATION
from adaptive_spec.sim.commands.printing import number, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from adaptive_spec.sim.advice.advice import Advice
    from adaptive_spec.sim.off_policy.intervals import Estimate


def print_advice(advice: Advice, console: Console) -> None:
    """Print what ran, what other set-ups would have given, and what to configure."""

    def say(sentence: str, style: str = "") -> None:
        console.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)

    k_share = ", ".join(f"K = {k} {share:.0%}" for k, share in advice.k_share.items())
    modes = ", ".join(f"{mode} {share:.0%}" for mode, share in advice.modes.items())
    console.print(_recorded(advice))
    say(f"used: {k_share}; modes: {modes}")
    for kind in advice.kinds:
        rates = " ".join("–" if rate is None else f"{rate:.2f}" for rate in kind.by_position)
        say(f"acceptance by position, {kind.name} ({kind.requests:,} requests): {rates}")
    if advice.predictions:
        console.print(_predicted(advice))
        say(_by_clients(advice))
    say(advice.verdict, "bold")
    for name in advice.recommended:
        for line in next(each.lines for each in advice.predictions if each.name == name):
            say(f"  {line}", "green")
    for sentence in (*advice.memory, *advice.certainty):
        say(f"- {sentence}")


def _recorded(advice: Advice) -> object:
    headings = ("share of time", "tokens/s", "mean K", "accepted", "step ms")
    made = table("recorded", "requests", *headings, least=8)
    for load in (*advice.loads, advice.overall):
        made.add_row(
            str(load.clients or "all"),
            f"{load.share:.0%}",
            number(load.tokens_per_second),
            f"{load.mean_k:.2f}",
            "–" if load.acceptance is None else f"{load.acceptance:.0%}",
            number(load.step_ms),
        )
    return made


def _predicted(advice: Advice) -> object:
    """Absolute tokens/s of no speculation, then gains over it, by load and over all."""
    none = advice.predictions[0]
    loads = [f"at {load.clients}" for load in advice.loads]
    made = table(
        "predicted: tokens/s without speculation, then times that",
        *("set-up", *loads, "all", "interval", "TPOT p50 p99 ms"),
        least=10,
    )
    for each in advice.predictions:
        if each.name == NO_SPECULATION:
            figures = [number(load.value) for load in each.by_load]
            total = number(each.tokens_per_second.value)
            interval = _interval(each.tokens_per_second, 0)
        else:
            figures = _ratios(each.by_load, none.by_load)
            total, interval = f"{each.gain.value:.3f}", _interval(each.gain, 3)
        tpot = " ".join(number(value) for value in each.tpot_ms)
        best = each.gain.value == max(other.gain.value for other in advice.predictions)
        style = "bold" if best else ""
        made.add_row(each.name, *figures, total, interval, tpot, style=style)
    return made


def _ratios(own: Sequence[Estimate], none: Sequence[Estimate]) -> list[str]:
    return [f"{a.value / b.value:.2f}" for a, b in zip(own, none, strict=True)]


def _interval(estimate: Estimate, digits: int) -> str:
    return f"{estimate.low:.{digits}f}–{estimate.high:.{digits}f}"


def _by_clients(advice: Advice) -> str:
    best = ", ".join(
        f"{each.clients}: K = {each.best_k} × {each.gain.value:.2f}" for each in advice.by_clients
    )
    largest = advice.by_clients[-1].clients
    left_out = (
        f"up to {largest} requests the drafter pays"
        if advice.leave_out_from is None
        else f"from {advice.leave_out_from} requests on the drafter is better left out"
    )
    return f"best fixed K over none, by requests: {best}; {left_out}"
