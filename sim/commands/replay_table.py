"""Table of `adaptive-spec replay`: a line per policy, means over the seeds."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from adaptive_spec.sim.commands.printing import number, ratio, say, standard_output, table

if TYPE_CHECKING:
    from rich.console import Console

    from adaptive_spec.sim.oracle import Oracles
    from adaptive_spec.sim.result import Result
    from adaptive_spec.sim.scenario import Scenario


def print_table(
    scenario: Scenario, oracles: list[Oracles], results: list[Result], *, hint: str
) -> None:
    """Print means over the seeds, and what a reader must know of them.

    Args:
        scenario: what was replayed.
        oracles: of each seed, or none.
        results: by policy, then by seed.
        hint: why the oracles were left out, or "".
    """
    from rich.markup import escape

    console = standard_output()
    kmax = scenario.engine.max_draft_tokens
    load, hardware = _file_name(scenario.load), _file_name(scenario.hardware)
    title = f"{load} · {scenario.drafter}, Kmax {kmax} · {hardware}"
    seeds = len({result.seed for result in results})
    by_policy = [results[first : first + seeds] for first in range(0, len(results), seeds)]
    columns = list(_COLUMNS)
    if results[0].goodput_req_s is not None:
        columns.append(
            _Column("good req/s", lambda runs: number(_mean(runs, attrgetter("goodput_req_s"))))
        )
    shown = _fitting(columns, by_policy, console.width)
    printed = table(title, "policy", *(column.name for column in shown), least=_LEAST)
    for runs in by_policy:
        printed.add_row(escape(runs[0].policy), *(column.text(runs) for column in shown))
    console.print(printed)
    if seeds > 1:
        say(f"means of {seeds} seeds, ± half their range")
    if oracles:
        _print_best_k(console, scenario, oracles)
        if oracles[0].foresight is None and scenario.engine.level == 0:
            console.print("no foresight: with one K for the batch it is no bound")
    elif hint:
        console.print(hint)
    _print_validity(console, scenario, results)
    for runs in by_policy:
        for count, what in (
            (
                sum(run.rejected for run in runs),
                "requests would never fit into the KV pool and were rejected",
            ),
            (
                sum(run.fail_opens for run in runs),
                "decisions could not be used; the engine's own K ran",
            ),
        ):
            if count:
                console.print(f"{escape(runs[0].policy)}: {count:,} {what}")
    if len(shown) < len(columns):
        console.print("more columns in a wider terminal; all of it with --json")


def _print_best_k(console: Console, scenario: Scenario, oracles: list[Oracles]) -> None:
    from adaptive_spec.sim.result import best_static_ks

    found = best_static_ks([each.static for each in oracles], closed=oracles[0].closed)
    ladder = scenario.engine.ladder if scenario.engine.level == 0 else ()
    found = [k for k in found if not ladder or k in ladder]  # the others ran one that is on it
    names = ["0 (no speculation)" if k == 0 else str(k) for k in found]
    level = f"; {len(oracles)} seeds do not tell them apart" if len(found) > 1 else ""
    say(f"best fixed K on this load: {', '.join(names)}{level}")


def _print_validity(console: Console, scenario: Scenario, results: list[Result]) -> None:
    """How far off ratios may be, and a line where the run leaves what was validated."""
    from adaptive_spec.sim.hardware.validity import expected_error

    error, outside = expected_error(
        scenario.hardware,
        clients=max(result.most_batch for result in results),
        context=results[0].mean_context,
        k=scenario.engine.max_draft_tokens,
    )
    of_model = f"error of the cost model: ratios to no speculation within {error:.0%}"
    say(f"{of_model}; {outside}" if outside else of_model)


class _Column(NamedTuple):
    name: str
    text: Callable[[list[Result]], str]
    """Text of the column for the results of all seeds of a policy."""
    first: bool = True
    """Shown before the others where the terminal is narrow; of these, in order."""


_LEAST = 7
"""Characters of a policy's name that a narrow terminal shows in a line."""
_APART = 2
"""Blanks between columns."""
_COLUMNS = (
    _Column("tok/s", lambda runs: f"{_mean(runs, lambda run: run.throughput_tok_s):,.0f}"),
    _Column("/ no spec.", lambda runs: _ratio(runs, "of_no_speculation")),
    _Column("/ best K", lambda runs: _ratio(runs, "of_best_static")),
    _Column("/ foresight", lambda runs: _ratio(runs, "of_foresight")),
    _Column("TTFT p50 p99 ms", lambda runs: _pair(runs, "ttft_ms"), first=False),
    _Column("TPOT p50 p99", lambda runs: _pair(runs, "tpot_ms")),
    _Column("mean K", lambda runs: f"{_mean(runs, lambda run: run.mean_k):.2f}"),
    _Column(
        "accepted",
        lambda runs: f"{_mean(runs, lambda run: run.accepted_per_step):.2f}",
        first=False,
    ),
    _Column("batch", lambda runs: f"{_mean(runs, lambda run: run.mean_batch):.1f}", first=False),
    _Column("off", lambda runs: f"{_mean(runs, _off):.0%}", first=False),
    _Column(
        "preempted", lambda runs: f"{_mean(runs, lambda run: run.preemptions):,.0f}", first=False
    ),
    _Column(
        "decision us",
        lambda runs: number(_mean(runs, lambda run: run.decision_us.p50)),
        first=False,
    ),
)


def _fitting(columns: list[_Column], by_policy: list[list[Result]], width: int) -> list[_Column]:
    """Return the columns that fit beside the policies' names, in their order.

    The names may be folded for the columns that come first.
    """
    longest = max(_LEAST, *(len(runs[0].policy) for runs in by_policy))
    taken: list[_Column] = []
    used = 0
    for column in sorted(columns, key=lambda column: not column.first):
        used += _APART + max(len(column.name), *(len(column.text(runs)) for runs in by_policy))
        if used + (_LEAST if column.first else longest) + _APART > width:
            break
        taken.append(column)
    return [column for column in columns if column in taken]


def _mean(runs: list[Result], metric: Callable[[Result], float | None]) -> float:
    """Mean over the seeds that have the figure; NaN if none has."""
    values = [value for run in runs if (value := metric(run)) is not None]
    return sum(values) / len(values) if values else float("nan")


def _ratio(runs: list[Result], name: str) -> str:
    from adaptive_spec.sim.result import mean_and_spread

    found = mean_and_spread(
        runs, lambda run: None if run.regret is None else getattr(run.regret, name)
    )
    if found is None:
        return ratio(None)
    return ratio(found[0], found[1] if len(runs) > 1 else None)


def _file_name(text: str) -> str:
    """Return a load or profile without the folders of its path."""
    return text.rpartition("/")[2]


def _pair(runs: list[Result], name: str) -> str:
    p50 = _mean(runs, attrgetter(f"{name}.p50"))
    p99 = _mean(runs, attrgetter(f"{name}.p99"))
    return f"{number(p50)} {number(p99)}"


def _off(result: Result) -> float:
    """Fraction of steps without speculation."""
    return sum(share for mode, share in result.mode_fraction.items() if mode.startswith("off"))
