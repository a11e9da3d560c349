"""`adaptive-spec profile`: a hardware profile from the step traces of a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.commands.terminal import print_json
from adaptive_spec.sim.commands.options import JsonForTable
from adaptive_spec.sim.commands.printing import say, standard_output, table

if TYPE_CHECKING:
    from adaptive_spec.sim.hardware.from_trace import TraceFit
    from adaptive_spec.sim.hardware.profile_file import HardwareProfile


def profile(
    traces: Annotated[
        list[Path], typer.Argument(help="Folders with step traces, as `trace.directory` names.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="Where to write the profile. Default: NAME.json.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the profile. Default: that of the first folder.")
    ] = None,
    drafter: Annotated[
        str,
        typer.Option(help="The drafter that ran, such as eagle. Default: its cost is any one's."),
    ] = "*",
    force: Annotated[bool, typer.Option("--force", help="Write one that fits badly, too.")] = False,
    json: JsonForTable = False,
) -> None:
    """Make a hardware profile for `replay` from recorded steps, and say how well it fits.

    The trace must hold steps with different K, at several batch sizes, and with prompts. Exit
    status 1: the profile does not fit and was not written.
    """
    from adaptive_spec.sim.hardware.from_trace import LARGEST_FIT_ERROR, profile_from_trace
    from adaptive_spec.sim.hardware.profile_file import write_hardware_profile

    name = name or traces[0].absolute().name.strip(".") or "profile"
    fitted, fit = profile_from_trace(traces, name=name, drafter=drafter)
    path = output or Path(f"{name}.json")
    if fit.usable or force:
        write_hardware_profile(fitted, path)
    if json:
        print_json(
            {"output": str(path) if fit.usable or force else None, "fit": fit, "profile": fitted}
        )
    else:
        _print_table(fitted, fit)
        if not fit.usable:
            say(
                f"Not usable: step times are not predictable (at most {LARGEST_FIT_ERROR:.0%} is "
                "usable), as other work shares the machine; record on an idle one. "
                + ("" if force else "Nothing was written; --force writes it.")
            )
        if fit.usable or force:
            say(f"Wrote {path}: adaptive-spec replay --hardware {path}", wrap=False)
    raise typer.Exit(0 if fit.usable or force else 1)


def _print_table(fitted: HardwareProfile, fit: TraceFit) -> None:
    printed = table(fitted.name, "part of a step", "milliseconds")
    for part, seconds in _parts(fitted):
        printed.add_row(part, f"{1e3 * seconds:.4g}")
    standard_output().print(printed)
    skipped = f", {fit.skipped} not measured cleanly" if fit.skipped else ""
    say(
        f"{fit.steps} steps{skipped}; error of a step: median {fit.median_error:.1%}, "
        f"p90 {fit.p90_error:.1%}; predicted over measured time: {fit.total:.3f}"
    )
    if fit.off_pass is not None:
        passes = "one draft pass" if fit.off_pass else "no draft pass"
        say(f"Steps of depth 0 look as if they ran {passes}.")


def _parts(fitted: HardwareProfile) -> list[tuple[str, float]]:
    knots = list(zip(fitted.tokens, fitted.seconds, strict=True))
    curve = [(f"verify, {tokens} tokens", seconds) for tokens, seconds in knots]
    (draft,) = fitted.drafts.values()
    return [
        *curve,
        ("per decoding request", fitted.per_request),
        ("per 1,000 tokens of context", 1e3 * fitted.per_context_token),
        (
            "per prompt token" + (", beyond verify" * fitted.prefill_in_curve),
            fitted.per_prefill_token,
        ),
        ("any draft verified", fitted.any_draft),
        ("any draft verified, per request", fitted.any_draft_per_request),
        ("draft pass", draft.pass_),
        ("draft pass, per request", draft.pass_per_request),
        ("draft pass, per 1,000 tokens of context", 1e3 * draft.pass_per_context_token),
    ]
