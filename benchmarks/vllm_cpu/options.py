"""The command line."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from benchmarks.bench_pair.names import KINDS
from demo.arms import ROOT

from .arms import DEFAULT_ARMS, OURS, Arm, parse_arm
from .cells import Condition
from .engine import MAX_NUM_SEQS, MIXED, MTP
from .errors import BenchmarkError

T = TypeVar("T")

DRAFTS = {"good": "draft", "poor": "draft_poor", "mtp": MTP, "eagle3": "eagle3_big"}
"""Names of the draft models and of the trained heads."""
QUICK_ARMS = ("none", "static2", "static6", OURS)
DESCRIPTION = """\
Measure real vLLM engines on this CPU: no speculation, static K, vLLM's own schedule of K by batch
size, and adaptive-spec, at several concurrencies. Interrupted, the same command goes on."""


@dataclass(frozen=True)
class Options:
    """What was asked for; fields are named as the options."""

    conditions: tuple[Condition, ...]
    arms: tuple[Arm, ...]
    concurrencies: tuple[int, ...]
    repeats: int
    seconds_per_cell: float
    learn_seconds: float
    models: Path
    output: Path
    results: Path | None
    record: Path | None
    beside: float
    lock: Path | None
    lock_seconds: float


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line; on a mistake argparse says what and ends the program."""
    parser = argparse.ArgumentParser(description=DESCRIPTION)
    add, listed = parser.add_argument, "LIST"
    add("--quick", action="store_true", help="four arms, concurrency 1 and 4, one short repeat")
    add(
        "--draft",
        type=_list(_among(*DRAFTS)),
        default=["good"],
        help=",".join(DRAFTS),
        metavar=listed,
    )
    add(
        "--workload",
        type=_list(_among(MIXED, *KINDS)),
        default=[MIXED],
        help=f"{MIXED},{','.join(KINDS)}",
        metavar=listed,
    )
    add("--temperature", type=_list(_number), default=[0.8], help="0 is greedy", metavar=listed)
    add(
        "--draft-sampling",
        type=_among("probabilistic", "greedy"),
        default="probabilistic",
        help="draws drafts from the draft model's distribution (default), or takes its most "
        "likely token",
    )
    add("--arms", type=_list(_arm), help=f"default {','.join(DEFAULT_ARMS)}", metavar=listed)
    add("--concurrency", type=_list(_concurrency), help="default 1,2,4,8,16", metavar=listed)
    add("--repeats", type=int, help="of each cell; default 3")
    add("--seconds-per-cell", type=float, help="at least; default 15")
    add("--learn-seconds", type=float, help="ours warms up at each concurrency; default 15")
    add("--models", type=Path, help="folder of the bench models; made if missing")
    add("--output", type=Path, default=ROOT / "out" / "vllm_cpu", help="cells, logs and traces")
    add("--results", type=Path, help="folder for the JSON files; default: --output")
    add("--record", type=Path, metavar="DIR", help="record step traces into DIR, measure nothing")
    add(
        "--beside",
        type=float,
        default=0.0,
        metavar="CORES",
        help="that other processes use throughout, on machines that are never idle",
    )
    add("--lock", type=Path, metavar="FILE", help="lock FILE exclusively while measuring")
    add("--lock-seconds", type=float, default=450.0, help="give it back after about so long")
    given = parser.parse_args(arguments)
    models = given.models or Path(os.environ.get("ADAPTIVE_SPEC_MODELS", ROOT / "out" / "models"))
    quick = given.quick
    positive = (given.repeats, given.seconds_per_cell, given.learn_seconds)
    if any(value is not None and value <= 0 for value in positive):
        parser.error("--repeats, --seconds-per-cell and --learn-seconds must be above 0")
    if not 0.0 <= given.beside < math.inf:
        parser.error("--beside is a number of cores, 0 or more")
    arms = given.arms or [parse_arm(name) for name in (QUICK_ARMS if quick else DEFAULT_ARMS)]
    options = Options(
        conditions=tuple(
            Condition(
                draft=draft,
                workload=workload,
                temperature=temperature,
                draft_sampling=given.draft_sampling,
            )
            for draft in given.draft
            for temperature in given.temperature
            for workload in given.workload
        ),
        arms=tuple(arms),
        concurrencies=tuple(given.concurrency or ((1, 4) if quick else (1, 2, 4, 8, 16))),
        repeats=given.repeats or (1 if quick else 3),
        seconds_per_cell=given.seconds_per_cell or (4.0 if quick else 15.0),
        learn_seconds=given.learn_seconds or (5.0 if quick else 15.0),
        models=models.resolve(),
        output=given.output.resolve(),
        results=given.results,
        record=given.record,
        beside=given.beside,
        lock=given.lock,
        lock_seconds=given.lock_seconds,
    )
    # Quick cells are other work than full ones: they don't belong in the same files.
    return replace(options, output=options.output / "quick") if quick else options


def _list(item: Callable[[str], T]) -> Callable[[str], list[T]]:
    def parse_list(text: str) -> list[T]:
        return list(dict.fromkeys(item(part.strip()) for part in text.split(",")))

    return parse_list


def _among(*names: str) -> Callable[[str], str]:
    def parse_name(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")
        return text

    return parse_name


def _arm(text: str) -> Arm:
    try:
        return parse_arm(text)
    except BenchmarkError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _concurrency(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MAX_NUM_SEQS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_NUM_SEQS}")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 2.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a temperature from 0 to 2")
    return value
