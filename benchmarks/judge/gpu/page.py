"""The page of a run, generated from its results.

    python -m benchmarks.judge.gpu.page OUT [--simulate [--traces FOLDER]]

writes OUT/gpu.json and OUT/gpu.md from OUT/results.jsonl; `--simulate` fits the hardware profile
and runs the simulator before.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..figures import markdown
from .bars import bars
from .bench import Results
from .summary import summarise


def render(summary: Mapping[str, Any]) -> str:
    """The page of a summary."""
    about = summary["about"]
    versions = summary.get("versions", {})
    stack = ", ".join(f"{name} {version}" for name, version in versions.items())
    parts = [
        f"# On a GPU\n\nExecuted on **{about['gpu']}** ({stack}). Arms take turns on the same card "
        "within seconds, so their\nratios are paired; tables give the middle, lowest and highest "
        "ratio of the repeats.\n"
    ]
    methods = sorted({row["method"] for row in summary.get("sweep", ())} | {about["method"]})
    for method in methods:
        parts.append(_bars(summary, method))
    for method in methods:
        parts += _sweeps(summary, method)
    parts += [_own_time(summary), _graphs(summary), _step_costs(summary)]
    parts += [_simulator(summary), _failed(summary)]
    return "\n".join(part for part in parts if part)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    return markdown(head, rows) + "\n"


def _bars(summary: Mapping[str, Any], method: str) -> str:
    head = ["question", "wanted", "measured", "met"]
    words = {True: "yes", False: "**no**", None: ""}
    found = bars(summary, method)
    rows = [(bar.question, bar.wanted, bar.measured, words[bar.met]) for bar in found]
    return f"## Bars: {method}\n\n" + table(head, rows)


def _sweeps(summary: Mapping[str, Any], method: str) -> list[str]:
    rows = [row for row in summary.get("sweep", ()) if row["method"] == method]
    parts = []
    for temperature in sorted({row["temperature"] for row in rows}, reverse=True):
        parts.append(
            f"## Throughput: {method}, temperature {temperature:g}\n\n"
            + _cells([row for row in rows if row["temperature"] == temperature])
            + "\nThe best static K is chosen in hindsight, which biases it upward.\n"
        )
    return parts


def _cells(rows: Iterable[Mapping[str, Any]]) -> str:
    heads = ("clients", "arm", "tokens/s", "over no speculation", "over best static", "mean K")
    ratios = "over_none", "over_best_static"
    return table(
        [*heads, "step ms"],
        [
            (
                row["load"],
                row["arm"],
                f"{row['tokens_per_s'].middle:.0f}",
                *(row[name].text(3) if row[name] else "" for name in ratios),
                *(f"{row[name].middle:.2f}" if row[name] else "" for name in ("mean_k", "step_ms")),
            )
            for row in sorted(rows, key=lambda row: (row["load"], row["arm"]))
        ],
    )


def _step_costs(summary: Mapping[str, Any]) -> str:
    steps = summary.get("steps")
    if not steps:
        return ""
    rows = sorted(
        (row for some in steps.values() for row in some),
        key=lambda row: (row["prompt"], row["batch"], row.get("k", -1), row.get("ragged", False)),
    )
    found = table(
        ["prompt", "requests", "K", "drafted", "K differ", "ms (10 to 90 percent)", "graphs"],
        [
            (
                row["prompt"],
                row["batch"],
                "no speculation" if row.get("none") else row["k"],
                "" if row.get("none") else row["k"] if row["depth"] is None else row["depth"],
                "yes" if row.get("ragged") else "",
                f"{row['ms']:.2f} ({row['ms_p10']:.2f} to {row['ms_p90']:.2f})",
                ", ".join(sorted(mode for mode in row["graphs"] if mode)),
            )
            for row in rows
        ],
    )
    penalty = summary.get("ragged_penalty")
    said = "" if penalty is None else f"\nRagged penalty: {100 * penalty:.1f} percent.\n"
    return f"## Step costs\n\n{found}{said}"


def _own_time(summary: Mapping[str, Any]) -> str:
    own = summary.get("own", {})
    rows = [(*key.split("/"), row["own_us"], row["own_cpu_us"]) for key, row in own.items()]
    if not rows:
        return ""
    head = ["engine", "clients", "microseconds", "CPU microseconds"]
    said = "Time of our own code per step, with the default policy deciding:\n\n"
    return "## The plugin's own time\n\n" + said + table(head, rows)


def _graphs(summary: Mapping[str, Any]) -> str:
    rows = summary.get("graph_cells")
    return "## Varlen against uniform graphs\n\n" + _cells(rows) if rows else ""


def _simulator(summary: Mapping[str, Any]) -> str:
    found = summary.get("simulator", {})
    if "cells" not in found:
        return ""
    rows = [
        (row["load"], row["arm"], row["measured"], row["simulated"], f"{100 * row['error']:+.1f}")
        for row in found["cells"]
    ]
    head = ["clients", "arm", "measured over no speculation", "simulated", "error, percent"]
    mean = f"\nMean absolute error: {100 * found['mean_error']:.1f} percent.\n"
    return "## The simulator on this GPU's profile\n\n" + table(head, rows) + mean


def _failed(summary: Mapping[str, Any]) -> str:
    failed = summary.get("failed")
    if not failed:
        return ""
    rows = [(key, why.splitlines()[0].replace("|", "/")[:160]) for key, why in failed.items()]
    return "## What failed\n\n" + table(["what", "why"], rows)


def write_page(out: Path) -> None:
    """Write OUT/gpu.json, with a line for each key, and OUT/gpu.md."""
    summary = summarise(out)
    lines = (f"{json.dumps(k)}: {msgspec.json.encode(v).decode()}" for k, v in summary.items())
    (out / "gpu.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    (out / "gpu.md").write_text(render(summary), encoding="utf-8")


def simulate(out: Path, traces: Path) -> None:
    """Fit the profile to steps recorded under `traces`, and simulate the sweep on it."""
    from .profile import make_profile
    from .simulated import errors

    summary, results = summarise(out), Results(out / "results.jsonl")
    options, sweep = summary["options"], summary.get("sweep", ())
    # A second call may have been about another method, without a sweep.
    method = sweep[0]["method"] if sweep else summary["about"]["method"]
    results.add("profile", make_profile(out, traces, f"{method}-ours"))
    rows = [row for row in sweep if row["method"] == method]
    results.add("simulator", errors(out, traces, rows, {**options, "method": method}))


def main(arguments: list[str] | None = None) -> int:
    """Write what the command line says."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder of a run")
    parser.add_argument("--simulate", action="store_true", help="fit the profile, simulate")
    parser.add_argument("--traces", type=Path, help="folder of the step traces")
    options = parser.parse_args(arguments)
    if options.simulate:
        simulate(options.out, options.traces or options.out / "traces")
    write_page(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
