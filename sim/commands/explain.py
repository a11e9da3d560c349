"""`adaptive-spec explain`: why speculation was off, or K was odd, at a step of a recorded trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.commands.terminal import print_json
from adaptive_spec.sim.commands.printing import say, standard_output, table

if TYPE_CHECKING:
    from adaptive_spec.sim.explain import Belief, Explained, Switches


def explain(
    trace: Annotated[Path, typer.Argument(help="Folder with steps-*.jsonl of a server.")],
    step: Annotated[int | None, typer.Option(min=0, help="Step to explain.")] = None,
    around: Annotated[
        float | None, typer.Option(min=0, help="Instead: seconds after the first step.")
    ] = None,
    replayed: Annotated[
        bool, typer.Option("--replayed", help="Switches of the replayed policy instead.")
    ] = False,
    policy: Annotated[str, typer.Option(help="Policy of the server.")] = "goodput",
    window: Annotated[
        int,
        typer.Option(min=5, help="Steps before and after it that its beliefs are held against."),
    ] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the policy.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say why a recorded server decided as it did, and which of its beliefs were wrong.

    Without --step and --around: every switch of speculation that was recorded.

    Example: adaptive-spec explain TRACE --around 90
    """
    from adaptive_spec.errors import ConfigError
    from adaptive_spec.sim.explain import explain as explain_step
    from adaptive_spec.sim.explain import switches
    from adaptive_spec.sim.policy_choice import parse_policy

    if step is not None and around is not None:
        raise ConfigError("give --step or --around, not both")
    choice = parse_policy(policy)
    if step is None and around is None:
        found = switches(trace, choice, seed)
        if json:
            print_json(found)
        else:
            _print_switches(found, replayed=replayed)
        return
    one = explain_step(trace, choice, step=step, around=around, seed=seed, window=window)
    if json:
        print_json([one])
    else:
        _print_step(one, window)


def _print_switches(found: Switches, *, replayed: bool) -> None:
    from adaptive_spec.sim.hardware.from_trace import FEWEST_STEPS

    if found.steps < FEWEST_STEPS:
        say(f"{found.steps} decode steps: too few to explain anything, {FEWEST_STEPS} are needed.")
        return
    if found.departs is not None:
        say(
            f"From step {found.departs:,} on the replay is off where the server was on, or the "
            "other way round (another seed, or what the server knew before the trace began): "
            "reasons and beliefs are the replay's."
        )
    shown = found.replayed if replayed else found.recorded
    for one in shown:
        say(_heading(one))
        say(f"  {_reason(one)}")
        for belief in one.beliefs:
            if belief.wrong:
                say(f"  wrong: {_in_words(belief)}")
    if not shown:
        whom = "by the replay" if replayed else "in the record"
        say(f"Speculation was never switched {whom} ({found.steps:,} decode steps).")


def _reason(one: Explained) -> str:
    return one.why if one.replayed is one.recorded else f"the replay: {one.why}"


def _print_step(one: Explained, window: int) -> None:
    console = standard_output()
    say(_heading(one))
    say(_reason(one))
    if one.switch:
        text = ", ".join(
            f"{name.replace('_', ' ')} {_short(value)}" for name, value in one.switch.items()
        )
        say(f"switch (seconds): {text}")
    for beliefs, when in ((one.beliefs, "before"), (one.afterwards, "after it")):
        title = f"beliefs, and the {window} steps {when}"
        printed = table(title, "belief", "believed", "measured", "samples", "")
        for belief in beliefs:
            verdict = "WRONG" if belief.wrong else "fits"
            printed.add_row(belief.name, *_values(belief), f"{belief.samples:,}", verdict)
        console.print(printed)
    wrong = [_in_words(belief) for belief in one.beliefs if belief.wrong]
    wrong += [f"{_in_words(belief)} afterwards" for belief in one.afterwards if belief.wrong]
    closing = "; ".join(wrong) if wrong else "no belief was wrong"
    say(f"Verdict: {closing}.")


def _heading(one: Explained) -> str:
    modes = f"recorded {one.recorded.value}"
    if one.replayed is not one.recorded:
        modes += f", replayed {one.replayed.value}"
    return f"step {one.step:,}, {one.at:.1f} s, {one.batch} requests: {modes}"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _values(belief: Belief) -> tuple[str, str]:
    if belief.seconds:
        return f"{1e3 * belief.believed:.2f} ms", f"{1e3 * belief.measured:.2f} ms"
    return f"{belief.believed:.0%}", f"{belief.measured:.0%}"


def _in_words(belief: Belief) -> str:
    believed, measured = _values(belief)
    return f"{belief.name}: {believed} believed, {measured} measured"
