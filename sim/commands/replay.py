"""`adaptive-spec replay`: what each policy would have done on a load."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from adaptive_spec.sim.commands.printing import print_json, progress_bar
from adaptive_spec.sim.commands.replay_table import print_table

if TYPE_CHECKING:
    from adaptive_spec.sim.oracle import Oracles
    from adaptive_spec.sim.policy_choice import PolicyChoice
    from adaptive_spec.sim.results.result import Result
    from adaptive_spec.sim.scenario import Scenario

LOAD, MACHINE, POLICIES, OUTPUT = "Load", "Machine", "Policies", "Output"
DEFAULT_KMAX = 8
DEFAULT_ACCEPTANCE = "model:mixed"
DEFAULT_POLICIES = ["off", "static:k=3", "goodput"]
SEEDS = 3
ENDLESS_TOKENS = 40_000
ORACLE_TOKENS = 300_000
"""With more tokens than this the oracles, Kmax + 2 runs more, are left out unless asked for."""


def replay(
    context: typer.Context,
    load: Annotated[
        str,
        typer.Option(
            help="closed:N, poisson:RATE, gamma:RATE:CV, or a file or folder. "
            "Default with other options than --hardware: moving.yaml, a load with bursts.",
            rich_help_panel=LOAD,
        ),
    ] = "",
    acceptance: Annotated[
        list[str] | None,
        typer.Option(
            help="File with acceptance, model:NAME or record:NAME[:KIND]; repeat to mix. "
            f"Default: {DEFAULT_ACCEPTANCE}.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    drafter: Annotated[
        str, typer.Option(help="How drafts are made: eagle, ngram, ...", rich_help_panel=MACHINE)
    ] = "eagle",
    hardware: Annotated[
        str,
        typer.Option(
            help="Name or file of a profile. Default without options: a100-llama-8b.",
            rich_help_panel=MACHINE,
        ),
    ] = "h100-llama-8b",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME[:key=value,...]; repeat to compare. "
            f"Default: {', '.join(DEFAULT_POLICIES)}.",
            rich_help_panel=POLICIES,
        ),
    ] = None,
    kmax: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Kmax. Default: {DEFAULT_KMAX}, or what the drafter can make.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Stop after this many emitted tokens. "
            f"Default: the whole file; {ENDLESS_TOKENS:,} of an endless load, per seed.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1e-3, help="Stop after this many simulated seconds.", rich_help_panel=LOAD
        ),
    ] = None,
    confidence_auc: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            max=0.999,
            help="Add a synthetic draft confidence of this AUC.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    warmup_steps: Annotated[
        int,
        typer.Option(
            min=0, help="Steps at the beginning that the figures leave out.", rich_help_panel=LOAD
        ),
    ] = 0,
    level: Annotated[
        int,
        typer.Option(
            min=0,
            max=2,
            help="0: one K per batch; 1: K per request; 2: depth too.",
            rich_help_panel=MACHINE,
        ),
    ] = 2,
    ladder: Annotated[
        str,
        typer.Option(
            help="K values that may run at level 0, such as 0,1,3,5.", rich_help_panel=MACHINE
        ),
    ] = "",
    delay: Annotated[
        int,
        typer.Option(
            min=0,
            max=2,
            help="Steps until an outcome is known to the policy.",
            rich_help_panel=MACHINE,
        ),
    ] = 0,
    max_running: Annotated[
        int, typer.Option(min=1, help="Requests admitted at a time.", rich_help_panel=MACHINE)
    ] = 256,
    max_batch_tokens: Annotated[
        int, typer.Option(min=1, help="Token budget of a step.", rich_help_panel=MACHINE)
    ] = 8192,
    kv_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="KV pool. Default: what memory leaves.", rich_help_panel=MACHINE),
    ] = None,
    memory_guard: Annotated[
        bool, typer.Option(help="Shrink K before the KV pool runs out.", rich_help_panel=MACHINE)
    ] = True,
    reentry_ms: Annotated[
        float,
        typer.Option(
            min=0.0, help="What it costs to speculate again after OFF.", rich_help_panel=MACHINE
        ),
    ] = 0.0,
    ragged_penalty: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Relative extra verify time where K differs in a batch.",
            rich_help_panel=MACHINE,
        ),
    ] = 0.0,
    ttft_limit: Annotated[
        float | None,
        typer.Option(min=1e-3, help="Milliseconds; for goodput.", rich_help_panel=LOAD),
    ] = None,
    tpot_limit: Annotated[
        float | None,
        typer.Option(min=1e-3, help="Milliseconds; for goodput.", rich_help_panel=LOAD),
    ] = None,
    oracles: Annotated[
        Literal["auto", "always", "never"],
        typer.Option(
            help="Hold results against the best fixed K and perfect foresight. "
            f"auto: up to {ORACLE_TOKENS:,} tokens.",
            rich_help_panel=POLICIES,
        ),
    ] = "auto",
    trace: Annotated[
        Path | None,
        typer.Option(help="Folder for step traces, one folder per policy.", rich_help_panel=OUTPUT),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Fixes load, records and policy.", rich_help_panel=POLICIES)
    ] = 0,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Runs per policy, from --seed on; figures are their means.",
            rich_help_panel=POLICIES,
        ),
    ] = SEEDS,
    kernel: Annotated[
        Literal["auto", "numpy", "numba"],
        typer.Option(help="Implementation of the planner.", rich_help_panel=POLICIES),
    ] = "auto",
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel=OUTPUT)
    ] = False,
    timeline: Annotated[
        bool,
        typer.Option(
            "--timeline",
            help="With --json: K and batch size over time as well.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None:
    """Replay a load against a machine's cost profile, once per policy.

    Without options but --hardware: fixed K and goodput at three loads, on one screen.

    Example: adaptive-spec replay --load closed:32 --acceptance TRACE --policy goodput
    """
    given = {name for name in context.params if _is_given(context, name)}
    if given <= {"hardware", "json", "timeline"}:
        from adaptive_spec.sim.commands.showcase import HARDWARE, print_showcase, simulate_all

        found = simulate_all(hardware if "hardware" in given else HARDWARE)
        if json:
            _print_json(
                list(found.values()), timeline=timeline, loads=[cell.load for cell in found]
            )
        else:
            print_showcase(found)
        return
    from adaptive_spec.policies.kernels import select_kernel
    from adaptive_spec.sim.policy_choice import parse_policy

    select_kernel(kernel)
    if not policy:
        policy = DEFAULT_POLICIES if kmax is None or kmax >= 3 else ["off", "static", "goodput"]
    choices = [parse_policy(text) for text in policy]
    for choice in choices:
        choice.build(seed)  # reports an unknown name or option before anything else is imported

    from adaptive_spec.sim.engine.options import EngineOptions
    from adaptive_spec.sim.examples import MOVING
    from adaptive_spec.sim.scenario import Scenario
    from adaptive_spec.step import Level

    scenario = Scenario(
        load=load or str(MOVING),
        acceptance=tuple(acceptance or [DEFAULT_ACCEPTANCE]),
        drafter=drafter,
        hardware=hardware,
        engine=EngineOptions(
            max_draft_tokens=kmax or DEFAULT_KMAX,
            level=Level(level),
            ladder=_ladder(ladder, level),
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
        choice.require_runnable(scenario.engine)
    if mismatch := scenario.acceptance_mismatch():
        print(f"warning: {mismatch}", file=sys.stderr)
    for note in scenario.load_notes():
        print(f"note: {note}", file=sys.stderr)
    seen, results = _run(scenario, choices, trace, seeds=seeds, oracles=oracles)
    hint = ""
    if oracles == "auto" and not seen:
        hint = (
            f"oracles are left out above {ORACLE_TOKENS:,} tokens; run them with --oracles always"
        )
    if json:
        print(hint, end="\n" if hint else "", file=sys.stderr)
        _print_json(results, timeline=timeline)
    else:
        print_table(scenario, seen, results, hint=hint)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _ladder(text: str, level: int) -> tuple[int, ...]:
    from adaptive_spec.errors import ConfigError

    if text and level:
        raise ConfigError(f"--ladder {text!r} says what may run at level 0: add --level 0")
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
    scenario: Scenario,
    choices: list[PolicyChoice],
    trace: Path | None,
    *,
    seeds: int,
    oracles: Literal["auto", "always", "never"],
) -> tuple[list[Oracles], list[Result]]:
    """The oracles by seed, and the results by policy and seed; traces are those of the first."""
    import msgspec

    from adaptive_spec.sim.oracle import consult
    from adaptive_spec.sim.scenario import simulate, traced

    results: list[list[Result]] = [[] for _ in choices]
    seen: list[Oracles] = []
    per_oracle = scenario.engine.max_draft_tokens + 2
    wanted = oracles != "never"
    with progress_bar() as progress:
        task = progress.add_task("", total=seeds * (len(choices) + wanted * per_oracle))
        for seed in range(scenario.seed, scenario.seed + seeds):
            of_seed = msgspec.structs.replace(scenario, seed=seed)
            for number, choice in enumerate(choices):
                progress.update(task, description=choice.text)
                folder = None
                if trace is not None and seed == scenario.seed:
                    folder = trace / f"{number}-{choice.name.replace(':', '.')}"
                results[number].append(simulate(traced(of_seed, folder), choice))
                progress.advance(task)
            if oracles == "auto" and seed == scenario.seed:  # a file's length is known only now
                emitted = max(runs[-1].tokens for runs in results)
                wanted = min(emitted, scenario.tokens or emitted) <= ORACLE_TOKENS
                progress.update(task, total=seeds * (len(choices) + wanted * per_oracle))
            if wanted:
                progress.update(task, description="oracles")
                seen.append(consult(of_seed, progress=lambda: progress.advance(task)))
                for runs in results:
                    runs[-1] = seen[-1].held_against(runs[-1])
    return seen, [run for runs in results for run in runs]


def _print_json(results: list[Result], *, timeline: bool, loads: Sequence[str] = ()) -> None:
    """Print the results; `loads` are those of each, where they differ."""
    import msgspec

    built = msgspec.to_builtins(results)
    if not timeline:
        for result in built:
            del result["timeline"]
    print_json(
        [{"load": load} | result for load, result in zip(loads, built, strict=True)]
        if loads
        else built
    )
