"""`adaptive-spec replay`: what each policy would have done on a load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from adaptive_spec.sim.commands.printing import number, print_json, ratio, standard_output, table

if TYPE_CHECKING:
    from adaptive_spec.sim.policy_choice import PolicyChoice
    from adaptive_spec.sim.results.result import Percentiles, Result
    from adaptive_spec.sim.scenario import Scenario

DEFAULT_KMAX = 8
DEFAULT_POLICIES = ["off", "static:k=3", "goodput"]
ENDLESS_TOKENS = 100_000
ORACLE_TOKENS = 300_000
"""With more tokens than this the oracles, Kmax + 2 runs more, are left out unless asked for."""


def replay(
    load: Annotated[
        str, typer.Option(help="closed:N, poisson:RATE, gamma:RATE:CV, or a file or folder.")
    ] = "closed:32",
    acceptance: Annotated[
        list[str] | None,
        typer.Option(
            help="File with acceptance, model:NAME or record:NAME[:KIND]; repeat to mix. "
            "Default: an example."
        ),
    ] = None,
    drafter: Annotated[str, typer.Option(help="How drafts are made: eagle, ngram, ...")] = "eagle",
    hardware: Annotated[str, typer.Option(help="Name or file of a profile.")] = "h100-llama-8b",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"NAME[:key=value,...]; repeat to compare. Default: {', '.join(DEFAULT_POLICIES)}."
        ),
    ] = None,
    kmax: Annotated[
        int | None,
        typer.Option(min=1, help=f"Kmax. Default: {DEFAULT_KMAX}, or what the drafter can make."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stop after this many emitted tokens. "
            f"Default: the whole file; {ENDLESS_TOKENS:,} of an endless load.",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1e-3, help="Stop after this many simulated seconds.")
    ] = None,
    confidence_auc: Annotated[
        float | None,
        typer.Option(min=0.5, max=0.999, help="Add a synthetic draft confidence of this AUC."),
    ] = None,
    warmup_steps: Annotated[
        int, typer.Option(min=0, help="Steps at the beginning that the figures leave out.")
    ] = 0,
    level: Annotated[
        int, typer.Option(min=0, max=2, help="0: one K per batch; 1: K per request; 2: depth too.")
    ] = 2,
    ladder: Annotated[
        str, typer.Option(help="K values that may run at level 0, such as 0,1,3,5.")
    ] = "",
    delay: Annotated[
        int, typer.Option(min=0, max=2, help="Steps until an outcome is known to the policy.")
    ] = 0,
    max_running: Annotated[int, typer.Option(min=1, help="Requests admitted at a time.")] = 256,
    max_batch_tokens: Annotated[int, typer.Option(min=1, help="Token budget of a step.")] = 8192,
    kv_tokens: Annotated[
        int | None, typer.Option(min=1, help="KV pool. Default: what memory leaves.")
    ] = None,
    memory_guard: Annotated[
        bool, typer.Option(help="Shrink K before the KV pool runs out.")
    ] = True,
    reentry_ms: Annotated[
        float, typer.Option(min=0.0, help="What it costs to speculate again after OFF.")
    ] = 0.0,
    ragged_penalty: Annotated[
        float, typer.Option(min=0.0, help="Relative extra verify time where K differs in a batch.")
    ] = 0.0,
    ttft_limit: Annotated[
        float | None, typer.Option(min=1e-3, help="Milliseconds; for goodput.")
    ] = None,
    tpot_limit: Annotated[
        float | None, typer.Option(min=1e-3, help="Milliseconds; for goodput.")
    ] = None,
    oracles: Annotated[
        Literal["auto", "always", "never"],
        typer.Option(
            help="Hold results against the best fixed K and perfect foresight. "
            f"auto: up to {ORACLE_TOKENS:,} tokens."
        ),
    ] = "auto",
    trace: Annotated[
        Path | None, typer.Option(help="Folder for step traces, one folder per policy.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes load, records and policy.")] = 0,
    kernel: Annotated[
        Literal["auto", "numpy", "numba"], typer.Option(help="Implementation of the planner.")
    ] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="With --json: K and batch size over time as well.")
    ] = False,
) -> None:
    """Replay a load against a machine's cost profile, once per policy.

    Without options: requests recorded from a real vLLM run, on an H100 profile.
    """
    from adaptive_spec.kernels import select_kernel
    from adaptive_spec.sim.policy_choice import parse_policy

    select_kernel(kernel)
    choices = [parse_policy(text) for text in policy or DEFAULT_POLICIES]
    for choice in choices:
        choice.build(seed)  # reports an unknown name or option before anything else is imported

    from adaptive_spec.sim.engine.options import EngineOptions
    from adaptive_spec.sim.examples import EXAMPLE
    from adaptive_spec.sim.scenario import Scenario
    from adaptive_spec.step import Level

    scenario = Scenario(
        load=load,
        acceptance=tuple(acceptance or [str(EXAMPLE)]),
        drafter=drafter,
        hardware=hardware,
        engine=EngineOptions(
            max_draft_tokens=kmax or DEFAULT_KMAX,
            level=Level(level),
            ladder=_ladder(ladder),
            delay=delay,
            max_running=max_running,
            max_batch_tokens=max_batch_tokens,
            kv_tokens=kv_tokens,
            memory_guard=memory_guard,
            reentry_seconds=reentry_ms / 1e3,
            ragged_penalty=ragged_penalty,
        ),
        seed=seed,
        tokens=tokens,
        seconds=float("inf") if seconds is None else seconds,
        confidence_auc=confidence_auc,
        warmup_steps=warmup_steps,
        ttft_limit_ms=ttft_limit,
        tpot_limit_ms=tpot_limit,
    )
    scenario = _bounded(scenario, kmax)
    for choice in choices:
        choice.require_at_most(scenario.engine.max_draft_tokens)
    if mismatch := scenario.acceptance_mismatch():
        print(f"warning: {mismatch}", file=sys.stderr)
    asked = oracles == "always" or (
        oracles == "auto" and scenario.tokens is not None and scenario.tokens <= ORACLE_TOKENS
    )
    results = _run(scenario, choices, trace, with_oracles=asked)
    if json:
        _print_json(results, timeline=timeline)
    else:
        _print_table(scenario, results, left_out=oracles == "auto" and not asked)


def _ladder(text: str) -> tuple[int, ...]:
    from adaptive_spec.errors import ConfigError

    try:
        return tuple(int(item) for item in text.split(",") if item.strip())
    except ValueError as error:
        raise ConfigError(f"--ladder {text!r}: expected integers such as 0,1,3,5") from error


def _bounded(scenario: Scenario, kmax: int | None) -> Scenario:
    """Kmax within what the drafter can make, unless it was asked for; an end for endless loads."""
    import msgspec

    most = scenario.most_drafts()
    if kmax is None and most < scenario.engine.max_draft_tokens:
        engine = msgspec.structs.replace(scenario.engine, max_draft_tokens=most)
        scenario = msgspec.structs.replace(scenario, engine=engine)
    if scenario.tokens is None and scenario.endless and scenario.seconds == float("inf"):
        scenario = msgspec.structs.replace(scenario, tokens=ENDLESS_TOKENS)
    return scenario


def _run(
    scenario: Scenario, choices: list[PolicyChoice], trace: Path | None, *, with_oracles: bool
) -> list[Result]:
    from rich.console import Console
    from rich.progress import Progress

    from adaptive_spec.sim.oracle import consult
    from adaptive_spec.sim.scenario import simulate, traced

    stderr = Console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("", total=len(choices) + with_oracles)
        results = []
        for number, choice in enumerate(choices):
            progress.update(task, description=choice.text)
            folder = None if trace is None else trace / f"{number}-{choice.name.replace(':', '.')}"
            results.append(simulate(traced(scenario, folder), choice))
            progress.advance(task)
        if with_oracles:
            progress.update(task, description="oracles")
            seen = consult(scenario)
            results = [seen.held_against(result) for result in results]
    return results


def _print_json(results: list[Result], *, timeline: bool) -> None:
    import msgspec

    built = msgspec.to_builtins(results)
    if not timeline:
        for result in built:
            del result["timeline"]
    print_json(built)


def _print_table(scenario: Scenario, results: list[Result], *, left_out: bool) -> None:
    from rich.markup import escape

    console = standard_output()
    wide = console.width >= _WIDE
    shown = [column for column in _COLUMNS if column.always or wide]
    if results[0].goodput_req_s is not None:
        shown.append(_Column("good req/s", lambda result: number(result.goodput_req_s)))
    kmax = scenario.engine.max_draft_tokens
    load, hardware = _file_name(scenario.load), _file_name(scenario.hardware)
    title = f"{load} · {scenario.drafter}, Kmax {kmax} · {hardware}"
    printed = table(title, "policy", *(column.name for column in shown), least=7)
    for result in results:
        printed.add_row(escape(result.policy), *(column.text(result) for column in shown))
    console.print(printed)
    regret = results[0].regret
    if regret is not None:
        none = " (no speculation)" if regret.best_static_k == 0 else ""
        console.print(f"best fixed K on this load: {regret.best_static_k}{none}")
        if regret.of_foresight is None and scenario.engine.level == 0:
            console.print("no foresight: with one K for the batch it is no bound")
    elif left_out:
        console.print(
            f"oracles are left out above {ORACLE_TOKENS:,} tokens; run them with --oracles always"
        )
    for result in results:
        for count, what in (
            (result.rejected, "requests would never fit into the KV pool and were rejected"),
            (result.fail_opens, "decisions could not be used; the engine's own K ran"),
        ):
            if count:
                console.print(f"{escape(result.policy)}: {count:,} {what}")
    if not wide:
        console.print("more columns in a wider terminal; all of it with --json")


class _Column(NamedTuple):
    name: str
    text: Callable[[Result], str]
    always: bool = True
    """Also in a terminal of 80 characters."""


_WIDE = 140
_COLUMNS = (
    _Column("tok/s", lambda result: f"{result.throughput_tok_s:,.0f}"),
    _Column("/ no spec.", lambda result: _ratio(result, "of_no_speculation")),
    _Column("/ best K", lambda result: _ratio(result, "of_best_static")),
    _Column("/ foresight", lambda result: _ratio(result, "of_foresight")),
    _Column("TTFT p50 p99 ms", lambda result: _pair(result.ttft_ms), always=False),
    _Column("TPOT p50 p99", lambda result: _pair(result.tpot_ms)),
    _Column("mean K", lambda result: f"{result.mean_k:.2f}"),
    _Column("accepted", lambda result: f"{result.accepted_per_step:.2f}", always=False),
    _Column("batch", lambda result: f"{result.mean_batch:.1f}", always=False),
    _Column("off", lambda result: f"{_off(result):.0%}", always=False),
    _Column("preempted", lambda result: f"{result.preemptions:,}", always=False),
    _Column("decision us", lambda result: number(result.decision_us.p50), always=False),
)


def _ratio(result: Result, name: str) -> str:
    value = None if result.regret is None else getattr(result.regret, name)
    return ratio(value)


def _file_name(text: str) -> str:
    """Return a load or profile without the folders of its path."""
    return text.rpartition("/")[2]


def _pair(percentiles: Percentiles) -> str:
    return f"{number(percentiles.p50)} {number(percentiles.p99)}"


def _off(result: Result) -> float:
    """Fraction of steps without speculation."""
    return sum(share for mode, share in result.mode_fraction.items() if mode.startswith("off"))
