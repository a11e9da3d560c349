"""The command line of the demo."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.judge.arms import Arm

from .arms import DEFAULT_ARMS, MAX_NUM_SEQS, OURS, ROOT, Files, parse_arm
from .errors import DemoError

DESCRIPTION = """\
Start real vLLM servers on this machine, without speculation, with a static K, and with
adaptive-spec; show how K follows the load; measure all of them on the same work."""


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    arms: tuple[Arm, ...]
    concurrencies: tuple[int, ...]
    repeats: int
    all_repeats: bool
    quick: bool
    keep: bool
    files: Files


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line; on a mistake argparse says what and ends the program."""
    parser = argparse.ArgumentParser(description=DESCRIPTION)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="under two minutes: adaptive-spec only, without comparison",
    )
    parser.add_argument("--keep", action="store_true", help="leave the servers running")
    parser.add_argument(
        "--arms",
        type=_arms,
        default=_arms(",".join(DEFAULT_ARMS)),
        metavar="NAMES",
        help=f"servers to compare, by comma; default {','.join(DEFAULT_ARMS)}",
    )
    parser.add_argument(
        "--concurrency",
        type=_concurrencies,
        default=(1, 4, 16),
        metavar="NUMBERS",
        help="requests under way in act two, by comma; default 1,4,16",
    )
    parser.add_argument(
        "--repeats",
        type=_repeats,
        help="of each measurement; default 3, or 2 where 3 take more than 12 minutes",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "out" / "demo",
        metavar="DIR",
        help="folder for tables, page, logs and trace; default out/demo",
    )
    given = parser.parse_args(arguments)
    models = os.environ.get("ADAPTIVE_SPEC_MODELS")
    return Options(
        arms=_arms(OURS) if given.quick else given.arms,
        concurrencies=given.concurrency,
        repeats=given.repeats or 3,
        all_repeats=given.repeats is not None,
        quick=given.quick,
        keep=given.keep,
        files=Files(
            models=Path(models).resolve() if models else ROOT / "out" / "models",
            output=given.output.resolve(),
        ),
    )


def _arms(text: str) -> tuple[Arm, ...]:
    try:
        arms = tuple(parse_arm(name.strip()) for name in dict.fromkeys(text.split(",")))
    except DemoError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if OURS not in [arm.name for arm in arms]:
        raise argparse.ArgumentTypeError(f"`{OURS}` must be among them, act one shows it")
    return arms


def _concurrencies(text: str) -> tuple[int, ...]:
    try:
        values = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from error
    if any(not 1 <= value <= MAX_NUM_SEQS for value in values):
        raise argparse.ArgumentTypeError(f"{text!r}: numbers from 1 to {MAX_NUM_SEQS} expected")
    return values


def _repeats(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)
