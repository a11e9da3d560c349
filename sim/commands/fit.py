"""`adaptive-spec fit`: the model file of the `regression` policy, from recorded steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_spec.commands.terminal import print_json
from adaptive_spec.sim.commands.printing import say, write_file


def fit(
    traces: Annotated[
        list[Path], typer.Argument(help="Step traces (folder or file), or npz files of steps.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write the model.")] = Path("model.json"),
    held_out: Annotated[
        float,
        typer.Option(min=0.05, max=0.9, help="Fraction of the requests to measure on, not fit to."),
    ] = 0.3,
    name: Annotated[str, typer.Option(help="Name of the model, for people.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the split.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Fit acceptance and step times to recorded steps, and say how well they are predicted.

    The model is for the policy `regression`. Calibration is measured on held-out requests.
    """
    import msgspec

    from adaptive_spec.errors import DataError
    from adaptive_spec.sim.fit import fit_model

    if out.is_dir() or not out.parent.is_dir():  # said before anything is fitted
        what = "is a folder" if out.is_dir() else f"there is no folder {out.parent}"
        raise DataError(f"--out {out}: {what}; name a file to write")
    model = fit_model(traces, held_out=held_out, seed=seed, name=name or out.stem)
    write_file(out, msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")
    found, error = model.calibration or {}, model.step_time_error
    if json:
        facts = {"output": str(out), "source": model.source, "calibration": found}
        print_json(facts | {"step_time_error": error})
        return
    say(model.source, wrap=False)
    say(
        f"Fitted to {found['requests']} requests, measured on {found['held_out']} others, "
        f"{found['drafts']:,} drafts:"
    )
    for way in ("without_confidence", "with_confidence"):
        if way in found:
            say(f"  {way.replace('_', ' ')}: {_figures(found[way])}")
    if error is None:
        say("No step times: the policy learns them online.")
    else:
        say(
            f"Step times: median error {error:.1%}, each step predicted before it was seen, over "
            "the second half."
        )
    say(f"Wrote {out}: --policy regression:model={out}", wrap=False)


def _figures(found: dict[str, float | None]) -> str:
    return ", ".join(
        f"{name} {'–' if found[key] is None else format(found[key], '.3f')}"
        for name, key in (("AUC", "auc"), ("calibration error", "ece"))
    )
