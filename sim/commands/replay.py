"""`adaptive-spec replay`: what each policy would have done on a load."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from adaptive_spec.commands.terminal import print_json, print_text
from adaptive_spec.sim.commands.options import with_options
from adaptive_spec.sim.commands.printing import progress_bar
from adaptive_spec.sim.commands.replay_table import print_table

if TYPE_CHECKING:
    from adaptive_spec.sim.oracle import Oracles
    from adaptive_spec.sim.policy_choice import PolicyChoice
    from adaptive_spec.sim.result import Result
    from adaptive_spec.sim.scenario import Scenario

DEFAULT_KMAX = 8
DEFAULT_ACCEPTANCE = "model:mixed"
DEFAULT_POLICIES = ["off", "static:k=3", "goodput"]
SEEDS = 3
ENDLESS_TOKENS = 40_000
ORACLE_TOKENS = 300_000
"""With more tokens than this the oracles, Kmax + 2 runs more, are left out unless asked for."""

_SAME_IN_THE_ENGINE = (
    *("delay", "max_running", "max_batch_tokens", "kv_tokens", "memory_guard", "ragged_penalty"),
)
"""Options that `EngineOptions` has under the same name."""

_load, _machine, _policies, _output = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Load", "Machine", "Policies", "Output")
)


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `replay`; each field is an option."""

    load: Annotated[
        str,
        _load(
            help="closed:N, poisson:RATE, gamma:RATE:CV, or a file or folder. "
            "Default with other options than --hardware: moving.yaml, a load with bursts."
        ),
    ] = ""
    acceptance: Annotated[
        list[str] | None,
        _load(
            help="File with acceptance, model:NAME or record:NAME[:KIND]; repeat to mix. "
            f"Default: {DEFAULT_ACCEPTANCE}."
        ),
    ] = None
    drafter: Annotated[str, _machine(help="How drafts are made: eagle, ngram, ...")] = "eagle"
    hardware: Annotated[
        str, _machine(help="Name or file of a profile. Default without options: a100-llama-8b.")
    ] = "h100-llama-8b"
    policy: Annotated[
        list[str] | None,
        _policies(
            help=f"NAME[:key=value,...]; repeat to compare. Default: {', '.join(DEFAULT_POLICIES)}."
        ),
    ] = None
    kmax: Annotated[
        int | None,
        _machine(min=1, help=f"Kmax. Default: {DEFAULT_KMAX}, or what the drafter can make."),
    ] = None
    tokens: Annotated[
        int | None,
        _load(
            min=1,
            help="Stop after this many emitted tokens. "
            f"Default: the whole file; {ENDLESS_TOKENS:,} of an endless load, per seed.",
        ),
    ] = None
    seconds: Annotated[
        float | None, _load(min=1e-3, help="Stop after this many simulated seconds.")
    ] = None
    confidence_auc: Annotated[
        float | None,
        _load(min=0.5, max=0.999, help="Add a synthetic draft confidence of this AUC."),
    ] = None
    warmup_steps: Annotated[
        int, _load(min=0, help="Steps at the beginning that the figures leave out.")
    ] = 0
    level: Annotated[
        int, _machine(min=0, max=2, help="0: one K per batch; 1: K per request; 2: depth too.")
    ] = 2
    ladder: Annotated[str, _machine(help="K values that may run at level 0, such as 0,1,3,5.")] = ""
    delay: Annotated[
        int, _machine(min=0, max=2, help="Steps until an outcome is known to the policy.")
    ] = 0
    max_running: Annotated[int, _machine(min=1, help="Requests admitted at a time.")] = 256
    max_batch_tokens: Annotated[int, _machine(min=1, help="Token budget of a step.")] = 8192
    kv_tokens: Annotated[
        int | None, _machine(min=1, help="KV pool. Default: what memory leaves.")
    ] = None
    memory_guard: Annotated[bool, _machine(help="Shrink K before the KV pool runs out.")] = True
    reentry_ms: Annotated[
        float, _machine(min=0.0, help="What it costs to speculate again after OFF.")
    ] = 0.0
    ragged_penalty: Annotated[
        float, _machine(min=0.0, help="Relative extra verify time where K differs in a batch.")
    ] = 0.0
    ttft_limit: Annotated[float | None, _load(min=1e-3, help="Milliseconds; for goodput.")] = None
    tpot_limit: Annotated[float | None, _load(min=1e-3, help="Milliseconds; for goodput.")] = None
    oracles: Annotated[
        Literal["auto", "always", "never"],
        _policies(
            help="Hold results against the best fixed K and perfect foresight. "
            f"auto: up to {ORACLE_TOKENS:,} tokens."
        ),
    ] = "auto"
    trace: Annotated[
        Path | None, _output(help="Folder for step traces, one folder per policy.")
    ] = None
    seed: Annotated[int, _policies(min=0, help="Fixes load, records and policy.")] = 0
    seeds: Annotated[
        int, _policies(min=1, help="Runs per policy, from --seed on; figures are their means.")
    ] = SEEDS
    json: Annotated[bool, _output("--json", help="Print JSON instead of a table.")] = False

    def choices(self) -> list[PolicyChoice]:
        """Return the policies to compare. Raises ConfigError or PolicyError."""
        from adaptive_spec.sim.policy_choice import parse_policy

        own = DEFAULT_POLICIES if (self.kmax or 3) >= 3 else ["off", "static", "goodput"]
        choices = [parse_policy(text) for text in self.policy or own]
        for choice in choices:
            choice.build(self.seed)  # reports an unknown name or option
        return choices

    def scenario(self) -> Scenario:
        """Return what to simulate, with an end. Raises ConfigError or DataError."""
        from adaptive_spec.sim.engine.options import EngineOptions
        from adaptive_spec.sim.examples import MOVING
        from adaptive_spec.sim.scenario import Scenario
        from adaptive_spec.step import Level

        scenario = Scenario(
            load=self.load or str(MOVING),
            acceptance=tuple(self.acceptance or [DEFAULT_ACCEPTANCE]),
            drafter=self.drafter,
            hardware=self.hardware,
            engine=EngineOptions(
                max_draft_tokens=self.kmax or DEFAULT_KMAX,
                level=Level(self.level),
                ladder=_ladder(self.ladder, self.level),
                reentry_seconds=self.reentry_ms / 1e3,
                **{name: getattr(self, name) for name in _SAME_IN_THE_ENGINE},
            ),
            seed=self.seed,
            tokens=self.tokens,
            seconds=float("inf") if self.seconds is None else self.seconds,
            confidence_auc=self.confidence_auc,
            warmup_steps=self.warmup_steps,
            ttft_limit_ms=self.ttft_limit,
            tpot_limit_ms=self.tpot_limit,
        )
        return _bounded(scenario, self.kmax)


@with_options(ReplayOptions)
def replay(context: typer.Context, options: ReplayOptions) -> None:
    """Replay a load against a machine's cost profile, once per policy.

    Without options but --hardware: fixed K and goodput at three loads, on one screen.

    Example: adaptive-spec replay --load closed:32 --acceptance TRACE --policy goodput
    """
    given = {name for name in context.params if _is_given(context, name)}
    if given <= {"hardware", "json"}:
        _show(options, other_hardware="hardware" in given)
        return
    choices = options.choices()  # before anything else is imported
    scenario = options.scenario()
    for choice in choices:
        choice.require_runnable(scenario.engine)
    if mismatch := scenario.acceptance_mismatch():
        print_text(f"warning: {mismatch}", error=True)
    for note in scenario.load_notes():
        print_text(f"note: {note}", error=True)
    seen, results = _run(scenario, choices, options)
    hint = ""
    if options.oracles == "auto" and not seen:
        hint = (
            f"oracles are left out above {ORACLE_TOKENS:,} tokens; run them with --oracles always"
        )
    if options.json:
        if hint:
            print_text(hint, error=True)
        _print_json(results)
    else:
        print_table(scenario, seen, results, hint=hint)


def _show(options: ReplayOptions, *, other_hardware: bool) -> None:
    """Print fixed K and goodput at three loads."""
    from adaptive_spec.sim.commands.showcase import HARDWARE, print_showcase, simulate_all

    found = simulate_all(options.hardware if other_hardware else HARDWARE)
    if options.json:
        loads = [cell.load for cell in found]
        _print_json(list(found.values()), loads)
    else:
        print_showcase(found)


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
    most = scenario.most_drafts()
    if kmax is None and most < scenario.engine.max_draft_tokens:
        engine = msgspec.structs.replace(scenario.engine, max_draft_tokens=most)
        scenario = msgspec.structs.replace(scenario, engine=engine)
    if scenario.tokens is None and scenario.endless and scenario.seconds == float("inf"):
        scenario = msgspec.structs.replace(scenario, tokens=ENDLESS_TOKENS)
    return scenario


def _run(
    scenario: Scenario, choices: list[PolicyChoice], options: ReplayOptions
) -> tuple[list[Oracles], list[Result]]:
    """The oracles by seed, and the results by policy and seed; traces are those of the first."""
    from adaptive_spec.sim.oracle import consult
    from adaptive_spec.sim.scenario import simulate, traced

    results: list[list[Result]] = [[] for _ in choices]
    seen: list[Oracles] = []
    per_oracle = scenario.engine.max_draft_tokens + 2
    seeds, trace = options.seeds, options.trace
    wanted = options.oracles != "never"
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
            if (
                options.oracles == "auto" and seed == scenario.seed
            ):  # a file's length is known only now
                emitted = max(runs[-1].tokens for runs in results)
                wanted = min(emitted, scenario.tokens or emitted) <= ORACLE_TOKENS
                progress.update(task, total=seeds * (len(choices) + wanted * per_oracle))
            if wanted:
                progress.update(task, description="oracles")
                seen.append(consult(of_seed, progress=lambda: progress.advance(task)))
                for runs in results:
                    runs[-1] = seen[-1].held_against(runs[-1])
    return seen, [run for runs in results for run in runs]


def _print_json(results: list[Result], loads: Sequence[str] = ()) -> None:
    """Print the results; `loads` are those of each, where they differ."""
    built = msgspec.to_builtins(results)
    print_json(
        [{"load": load} | result for load, result in zip(loads, built, strict=True)]
        if loads
        else built
    )
