"""Advice on a console: the verdict first, then the lines to paste, on request all figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_spec.sim.advice.setups import NO_SPECULATION
from adaptive_spec.sim.advice.verdict import measured_said
from adaptive_spec.sim.commands.printing import number, table

if TYPE_CHECKING:
    from rich.console import Console

    from adaptive_spec.sim.advice.values import Advice


def print_advice(advice: Advice, console: Console, *, details: bool = False) -> None:
    """Print the verdict and what to configure; with `details`, all figures behind it."""
    from rich.table import Table
    from rich.text import Text

    def say(sentence: str, style: str = "") -> None:
        console.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)

    verdict = advice.verdict
    answers = Table.grid(padding=(0, 2), pad_edge=False)
    answers.add_column(no_wrap=True)
    if measured := measured_said(advice):
        answers.add_row("Measured", Text(measured, style="bold"))
    if verdict.runs:
        answers.add_row("You run", Text(verdict.runs, style="bold"))
    answers.add_row("Worth it?", Text(verdict.sentence, style="bold"))
    before = ""
    for question, text in verdict.answers:
        answers.add_row("" if question == before else question, Text(text))
        before = question
    console.print(answers)
    for place, name in enumerate(verdict.recommended):
        say("Paste" if not place else "or")
        for line in next(each.lines for each in advice.predictions if each.name == name):
            say(f"  {line}", "green")
    for sentence in (*advice.memory, *advice.replicas):
        say(sentence)
    if details or not advice.predictions:
        _print_details(advice, console, say)
    else:
        say("all figures: --details; a page with charts: --html FILE")


def _print_details(advice: Advice, console: Console, say: object) -> None:
    assert callable(say)
    k_share = ", ".join(f"K = {k} {share:.0%}" for k, share in advice.k_share.items())
    modes = ", ".join(f"{mode} {share:.0%}" for mode, share in advice.modes.items())
    console.print(_recorded(advice))
    say(f"used: {k_share}; modes: {modes}")
    for kind in advice.kinds:
        rates = " ".join("–" if rate is None else f"{rate:.2f}" for rate in kind.by_position)
        say(f"acceptance by position, {kind.name} ({kind.requests:,} requests): {rates}")
    if accepted := advice.kinds[0].accepted:
        by_k = " ".join(f"{each:.2f}" for each in accepted)
        say(f"accepted drafts per request and step at K = 1, 2, ...: {by_k}")
        planned = f"--nextn {len(accepted)} --nextn-accepted {accepted[-1]:.2f}"
        say(f"for a planner, at the largest K: aiconfigurator {planned}")
    if advice.predictions:
        console.print(_predicted(advice))
        say(by_clients(advice))
        say(METHOD)
    if advice.fit is not None:
        say(
            f"step times: {advice.fit.steps:,} steps, median error {advice.fit.median_error:.1%}, "
            f"predicted over measured time {advice.fit.total:.3f}"
        )


METHOD = (
    "The engine's own set-ups are tuned on one half of the trace and judged on the other; goodput "
    "learns while it runs. Intervals are 95 %, by resampling. Loads beyond the recorded ones "
    "extend the fitted costs in a straight line."
)


def _recorded(advice: Advice) -> object:
    made = table("recorded", *RECORDED, least=8)
    for row in recorded_rows(advice):
        made.add_row(*row)
    return made


RECORDED = ("requests", "share of time", "tokens/s", "mean K", "accepted", "step ms")


def recorded_rows(advice: Advice) -> list[list[str]]:
    """Return what was recorded of each load and of all, in the columns `RECORDED`."""
    return [
        [
            str(load.clients or "all"),
            f"{load.share:.0%}",
            number(load.tokens_per_second),
            f"{load.mean_k:.2f}",
            "–" if load.acceptance is None else f"{load.acceptance:.0%}",
            number(load.step_ms),
        ]
        for load in (*advice.loads, advice.overall)
    ]


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
            figures = [number(load) for load in each.by_load]
            total = number(each.tokens_per_second)
        else:
            pairs = zip(each.by_load, none.by_load, strict=True)
            figures = [f"{own / other:.2f}" for own, other in pairs]
            total = f"{each.gain:.3f}"
        span = each.interval
        interval = "" if span is None else f"{span.low:.3f}–{span.high:.3f}"
        tpot = " ".join(number(value) for value in each.tpot_ms)
        style = "bold" if each.name == advice.verdict.recommended[0] else ""
        made.add_row(each.name, *figures, total, interval, tpot, style=style)
    return made


def by_clients(advice: Advice) -> str:
    """Say which fixed K is best at which load, and from where on none is."""
    best = ", ".join(
        f"{each.clients}: K = {each.best_k} × {each.gain:.2f}" for each in advice.by_clients
    )
    largest = advice.by_clients[-1].clients
    left_out = (
        f"up to {largest} requests the drafter pays"
        if advice.leave_out_from is None
        else f"from {advice.leave_out_from} requests on the drafter is better left out"
    )
    recorded = advice.loads[-1].clients
    if (advice.leave_out_from or largest) > recorded:
        left_out += f" (beyond {recorded} requests extrapolated)"
    return f"best fixed K over none, by requests: {best}; {left_out}"
