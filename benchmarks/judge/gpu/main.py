"""Measure adaptive-spec on a GPU, stage by stage; every result is written as it comes.

    python -m benchmarks.judge.gpu.main OUT --models FOLDER [--stage sweep ...] [--seconds 480]
    python -m benchmarks.judge.gpu.main OUT --models FOLDER --tiny       # on a CPU, to try the code
    python -m benchmarks.judge.gpu.main OUT --models FOLDER --set loads=[8,32] cell_seconds=5

`benchmarks/bench_pair/llama_shapes.py` makes the models. OUT/results.jsonl has one line per result;
the same command goes on where an earlier one was stopped. At the end OUT/gpu.json has everything
and OUT/gpu.md is the page; `python -m benchmarks.judge.gpu.page OUT` makes both anew.

Stages: see `stages`; what `--set` takes: `setups.Options`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

import msgspec

from ..processes import ProcessError
from .bench import Bench, Results
from .page import write_page
from .setups import METHODS, TINY, Options
from .stages import STAGES

NOTHING_STARTED, OTHER_MACHINE = 3, 2


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run the stages.

    Returns 1 if an engine failed, 2 if OUT is another GPU's, 3 if no engine
    with adaptive-spec started.
    """
    given = _parser().parse_args(arguments)
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    options = msgspec.convert(
        {
            "models": str(given.models.resolve()),
            "scratch": str((given.scratch or out).resolve()),
            "method": given.method,
            "compilation": json.loads(given.compilation),
            **(TINY if given.tiny else {}),
            **{name: json.loads(value) for name, value in map(_pair, given.set)},
        },
        Options,
    )
    results = Results(out / "results.jsonl")
    about = {"gpu": _gpu_name(tiny=given.tiny), "method": options.method}
    known = results.found.get("about", about)
    if known["gpu"] != about["gpu"]:
        print(f"error: {out} has results of {known['gpu']}: name another folder")
        return OTHER_MACHINE
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    bench = Bench(options, results, given.seconds)
    results.add("about", about)
    results.add(f"run/{now}", {"stages": given.stage})
    results.add("options", msgspec.to_builtins(options) | {"rungs": bench.rungs})

    def nothing_started() -> bool:
        return bool(bench.fleet.failed) and bench.ours not in bench.fleet.started

    try:
        for name in given.stage:
            if nothing_started():
                # Each further stage would try every engine again, for minutes of a lent GPU.
                break
            print(f"##### {name}, {bench.left:.0f} s left", flush=True)
            try:
                STAGES[name](bench)
            except ProcessError as error:
                bench.fail(name, str(error))
    finally:
        bench.fleet.close()
        write_page(out)
    if nothing_started():
        return NOTHING_STARTED
    return 1 if bench.fleet.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("out", type=Path)
    add("--models", type=Path, required=True)
    add("--scratch", type=Path, help="folder for logs and step traces; default OUT")
    add("--stage", nargs="+", choices=list(STAGES), default=list(STAGES))
    add("--method", choices=METHODS, default="eagle")
    add("--seconds", type=float, default=480.0, help="then no cell is begun")
    add("--compilation", default="{}", help="vLLM's compilation_config, JSON")
    add("--tiny", action="store_true", help="on a CPU, to try the code")
    add("--set", nargs="+", default=[], metavar="NAME=JSON", help="other fields of `Options`")
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _gpu_name(*, tiny: bool) -> str:
    """The GPU's name, without a CUDA context, which would take memory from the engines."""
    if tiny:
        return "a CPU, toy models"
    query = "--query-gpu=name,memory.total"
    command = ["nvidia-smi", query, "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
