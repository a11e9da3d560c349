"""Measure adaptive-spec on a GPU, stage by stage; every result is written as it comes.

    python -m benchmarks.judge.gpu.main OUT --models FOLDER [--stage sweep ...] [--seconds 480]
    python -m benchmarks.judge.gpu.main OUT --models FOLDER --tiny       # on a CPU, to try the code

`benchmarks/bench_pair/llama_shapes.py` makes the models. OUT/results.jsonl has one line per result;
the same command goes on where an earlier one was stopped. At the end OUT/gpu.json has everything
and OUT/gpu.md is the page; `python -m benchmarks.judge.gpu.page OUT` makes both anew.

The stages are those of `stages`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from adaptive_spec.adapters.vllm.graph_ladder import rungs

from ..processes import ProcessError
from .bench import Bench, Extent, Results
from .fleet import Fleet
from .page import write_page
from .setups import METHODS, Machine
from .stages import STAGES

TINY = {
    "loads": [2],
    "repeats": 2,
    "cell_seconds": 0.2,
    "temperatures": [0.8],
    "max_num_seqs": 4,
    "answers": 4,
    "ks": [2, 5],
    "output_tokens": 8,
}
SHAPES: dict[str, Any] = {
    "batches": (1, 4, 16, 64, 128),
    "contexts": (128, 1024, 2500),
    "prompts": (256, 1024, 3000),
    "steps": 8,
}
TINY_SHAPES: dict[str, Any] = {
    "batches": (1, 3),
    "contexts": (32,),
    "prompts": (64,),
    "steps": 6,
}
NOTHING_STARTED, OTHER_MACHINE = 3, 2


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run the stages.

    Returns 1 if an engine failed, 2 if OUT is another GPU's, 3 if no engine
    with adaptive-spec started.
    """
    options = _parser().parse_args(arguments)
    if options.tiny:
        vars(options).update(TINY)
    options.out.mkdir(parents=True, exist_ok=True)
    results = Results(options.out / "results.jsonl")
    about = {"gpu": _gpu_name(tiny=options.tiny), "method": options.method}
    known = results.found.get("about", about)
    if known["gpu"] != about["gpu"]:
        print(f"error: {options.out} has results of {known['gpu']}: name another folder")
        return OTHER_MACHINE
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    results.add("about", about)
    results.add(f"run/{now}", {"options": list(map(str, arguments or sys.argv[1:]))})
    machine = _machine(options)
    extent = {
        "kmax": machine.kmax,
        "rungs": rungs(machine.kmax, (), most=machine.max_num_seqs),
        "max_num_seqs": machine.max_num_seqs,
        "gpu": machine.gpu,
        "output_tokens": options.output_tokens,
    }
    results.add("extent", extent)
    fleet = Fleet(machine, Path(machine.scratch) / "logs")
    deadline = time.monotonic() + options.seconds
    bench = Bench(fleet, results, _extent(options), machine, deadline)
    try:
        for name in options.stage:
            print(f"##### {name}, {deadline - time.monotonic():.0f} s left", flush=True)
            try:
                STAGES[name](bench)
            except ProcessError as error:
                bench.fail(name, str(error))
    finally:
        fleet.close()
        write_page(options.out)
    if fleet.failed and not fleet.started & {bench.ours}:
        return NOTHING_STARTED
    return 1 if fleet.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("out", type=Path)
    add("--models", type=Path, required=True)
    add("--scratch", type=Path, help="folder for logs and step traces; default OUT")
    add("--stage", nargs="+", choices=list(STAGES), default=list(STAGES))
    add("--method", choices=list(METHODS), default="eagle")
    add("--kmax", type=int, default=5)
    add("--ks", type=int, nargs="+", default=[1, 3, 5], help="static K of the sweep")
    add("--loads", type=int, nargs="+", default=[16, 1, 64, 128])
    add("--repeats", type=int, default=2)
    add("--temperatures", type=float, nargs="+", default=[0.8])
    add("--draft-sampling", default="greedy", help="vLLM's draft_sample_method")
    add("--cell-seconds", type=float, default=3.0)
    add("--output-tokens", type=int, default=96, help="length of an answer")
    add("--seconds", type=float, default=480.0, help="then no cell is begun")
    add("--compilation", default="{}", help="vLLM's compilation_config, JSON")
    add("--kv-gib", type=float, default=5.0, help="KV cache of an engine")
    add("--max-num-seqs", type=int, default=128)
    add("--answers", type=int, default=32, help="greedy answers compared")
    add("--tiny", action="store_true", help="on a CPU, to try the code")
    return parser


def _machine(options: argparse.Namespace) -> Machine:
    return Machine(
        models=str(options.models.resolve()),
        scratch=str((options.scratch or options.out).resolve()),
        gpu=not options.tiny,
        max_num_seqs=options.max_num_seqs,
        kv_gib=options.kv_gib,
        kmax=options.kmax,
        draft_sampling=options.draft_sampling,
        compilation=json.loads(options.compilation),
    )


def _extent(options: argparse.Namespace) -> Extent:
    return Extent(
        method=options.method,
        loads=tuple(options.loads),
        ks=tuple(options.ks),
        repeats=options.repeats,
        temperatures=tuple(options.temperatures),
        cell_seconds=options.cell_seconds,
        output_tokens=options.output_tokens,
        answers=options.answers,
        **(TINY_SHAPES if options.tiny else SHAPES),
    )


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
