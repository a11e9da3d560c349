"""Entry point: a process per condition, then text and JSON."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from benchmarks.vllm_cpu.engine import MAX_NUM_SEQS
from benchmarks.vllm_cpu.engines import environment as engine_environment
from benchmarks.vllm_cpu.errors import BenchmarkError
from benchmarks.vllm_cpu.results import one_line_per_entry
from demo.arms import ROOT, model_threads
from demo.report import environment

from .engine import ARMS, UNCOUNTED_STEPS, Condition, measure
from .ratios import as_json, text

NAME = "vllm_overhead"


def run(conditions: Sequence[Condition], folder: Path, command: str) -> None:
    """Measure all; show and save after each, so that an ended run leaves what it has."""
    from benchmarks.bench_pair.build import build

    build(Path(conditions[0].models), ("target_big", "draft"))
    os.environ.update(engine_environment())
    folder.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, object]] = []
    for condition in conditions:
        began = time.monotonic()
        print(f"{condition.title}: starting", flush=True)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            cycles, hooks = pool.submit(measure, condition, folder / f"{NAME}.log").result()
        print(text(condition.title, cycles), flush=True)
        found.append(
            {
                "condition": {
                    name: value
                    for name, value in msgspec.to_builtins(condition).items()
                    if name != "models"
                },
                "seconds": round(time.monotonic() - began),
                "taken_off_for_vllm_alone": hooks,
                **as_json(cycles),
            }
        )
        about = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": command,
            "environment": environment(),
            "model_threads": model_threads(),
            "columns_of_a_cycle": ["seconds", "processor", "own", "own_processor"],
        }
        path = folder / f"{NAME}.json"
        path.write_text(one_line_per_entry({**about, "conditions": found}), encoding="utf-8")
        print(path, flush=True)


def parse(arguments: Sequence[str] | None = None) -> tuple[list[Condition], Path]:
    """Conditions and the folder for results; on a mistake argparse ends the program."""
    parser = argparse.ArgumentParser(
        description="What adaptive-spec adds to a step of vLLM on this CPU."
    )
    add = parser.add_argument
    add("--k", default="2,6", help="fixed K, default 2,6")
    add("--draft-sampling", default="probabilistic,greedy", help="default both")
    add("--batch", type=int, default=16)
    add("--cycles", type=int, default=60, help=f"rounds of the {len(ARMS)} arms; default 60")
    add("--steps", type=int, default=3, help=f"counted steps of a block, after {UNCOUNTED_STEPS}")
    add("--temperature", type=float, default=0.8)
    add("--seed", type=int, default=0)
    add("--models", type=Path, help="folder of the bench models; made if missing")
    add("--results", type=Path, default=ROOT / "out" / NAME, help="folder for the JSON file")
    given = parser.parse_args(arguments)
    if min(given.cycles, given.steps) < 1 or not 1 <= given.batch <= MAX_NUM_SEQS:
        parser.error(f"--cycles and --steps are at least 1, --batch 1 to {MAX_NUM_SEQS}")
    ks = given.k.split(",")
    if not all(k.isdigit() and 1 <= int(k) <= 8 for k in ks):
        parser.error(f"--k {given.k}: numbers from 1 to 8, with commas between")
    ways = given.draft_sampling.split(",")
    if not set(ways) <= {"probabilistic", "greedy"}:
        parser.error(f"--draft-sampling {given.draft_sampling}: probabilistic, greedy or both")
    models = given.models or Path(os.environ.get("ADAPTIVE_SPEC_MODELS", ROOT / "out" / "models"))
    conditions = [
        Condition(
            models=str(models.resolve()),
            k=int(k),
            draft_sampling=way,
            batch=given.batch,
            cycles=given.cycles,
            steps=given.steps,
            temperature=given.temperature,
            seed=given.seed,
        )
        for way in ways
        for k in ks
    ]
    return conditions, given.results


def main() -> int:
    """Parse, run, say in one line what went wrong if something did."""
    conditions, folder = parse()
    try:
        run(conditions, folder, " ".join(["python", *sys.argv]))
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0
