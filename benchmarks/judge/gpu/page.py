"""The page of a run, generated from its results.

    python -m benchmarks.judge.gpu.page OUT [--simulate [--traces FOLDER]]

writes OUT/gpu.json and OUT/gpu.md from OUT/results.jsonl; `--simulate` fits the hardware profile
and runs the simulator before.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.commands.status_source import Gain

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
    parts += [_bars(summary, method) for method in methods]
    parts += [part for method in methods for part in _sweeps(summary, method)]
    own = summary.get("own", {}).items()
    failed = summary.get("failed", {}).items()
    parts += [
        _section(
            "The plugin's own time",
            ["engine", "clients", "microseconds", "CPU microseconds"],
            [(*key.split("/"), row["own_us"], row["own_cpu_us"]) for key, row in own],
            before="Time of our own code per step, with the default policy deciding:\n\n",
        ),
        _audit(summary),
        _cells("Varlen against uniform graphs", summary.get("graph_cells", ())),
        _step_costs(summary),
        _simulator(summary),
        _section(
            "What failed",
            ["what", "why"],
            [(key, why.splitlines()[0].replace("|", "/")[:160]) for key, why in failed],
        ),
    ]
    return "\n".join(part for part in parts if part)


def _section(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    before: str = "",
    after: str = "",
) -> str:
    """A table with its title; empty without rows."""
    return f"## {title}\n\n{before}{markdown(heads, rows)}\n{after}" if rows else ""


def _bars(summary: Mapping[str, Any], method: str) -> str:
    words = {True: "yes", False: "**no**", None: ""}
    found = bars(summary, method)
    rows = [(bar.question, bar.wanted, bar.measured, words[bar.met]) for bar in found]
    return _section(f"Bars: {method}", ["question", "wanted", "measured", "met"], rows)


def _sweeps(summary: Mapping[str, Any], method: str) -> Iterator[str]:
    rows = [row for row in summary.get("sweep", ()) if row["method"] == method]
    for temperature in sorted({row["temperature"] for row in rows}, reverse=True):
        yield _cells(
            f"Throughput: {method}, temperature {temperature:g}",
            [row for row in rows if row["temperature"] == temperature],
            after="\nThe best static K is chosen in hindsight, which biases it upward.\n",
        )


def _audit(summary: Mapping[str, Any]) -> str:
    found = summary.get("audit", {}).items()
    return _section(
        "The gain over vLLM's own K, by audit blocks",
        ["engine, clients", "tokens per second", "steps"],
        [(key, msgspec.convert(row, Gain), row["steps"]) for key, row in found],
    )


def _cells(title: str, cells: Iterable[Mapping[str, Any]], after: str = "") -> str:
    heads = ["clients", "arm", "tokens/s", "over no speculation", "over best static", "mean K"]
    ratios = "over_none", "over_best_static"
    rows = [
        (
            row["load"],
            row["arm"],
            f"{row['tokens_per_s'].middle:.0f}",
            *(row[name].text(3) if row[name] else "" for name in ratios),
            *(f"{row[name].middle:.2f}" if row[name] else "" for name in ("mean_k", "step_ms")),
        )
        for row in sorted(cells, key=lambda row: (row["load"], row["arm"]))
    ]
    return _section(title, [*heads, "step ms"], rows, after=after)


def _step_costs(summary: Mapping[str, Any]) -> str:
    steps = sorted(
        (row for some in summary.get("steps", {}).values() for row in some),
        key=lambda row: (row["prompt"], row["batch"], row.get("k", -1), row.get("ragged", False)),
    )
    rows = [
        (
            row["prompt"],
            row["batch"],
            "no speculation" if row.get("none") else row["k"],
            "" if row.get("none") else row["k"] if row["depth"] is None else row["depth"],
            "yes" if row.get("ragged") else "",
            f"{row['ms']:.2f} ({row['ms_p10']:.2f} to {row['ms_p90']:.2f})",
            ", ".join(sorted(mode for mode in row["graphs"] if mode)),
        )
        for row in steps
    ]
    penalty = summary.get("ragged_penalty")
    after = "" if penalty is None else f"\nRagged penalty: {100 * penalty:.1f} percent.\n"
    heads = ["prompt", "requests", "K", "drafted", "K differ", "ms (10 to 90 percent)", "graphs"]
    return _section("Step costs", heads, rows, after=after)


def _simulator(summary: Mapping[str, Any]) -> str:
    found = summary.get("simulator", {})
    rows = [
        (row["load"], row["arm"], row["measured"], row["simulated"], f"{100 * row['error']:+.1f}")
        for row in found.get("cells", ())
    ]
    return _section(
        "The simulator on this GPU's profile",
        ["clients", "arm", "measured over no speculation", "simulated", "error, percent"],
        rows,
        after=f"\nMean absolute error: {100 * found.get('mean_error', 0):.1f} percent.\n",
    )


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
