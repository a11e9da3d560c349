"""The command line of the demo."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .command import ROOT, Files

DESCRIPTION = """\
Start a real vLLM server with adaptive-spec on this machine, chat with it under a load that goes up
and down, and show how K follows; under two minutes."""


@dataclass(frozen=True)
class Options:
    """Options of the command."""

    keep: bool
    files: Files


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line; on a mistake argparse says what and ends the program."""
    parser = argparse.ArgumentParser(description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="leave the server running")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "out" / "demo",
        metavar="DIR",
        help="folder for page, log and trace; default out/demo",
    )
    given = parser.parse_args(arguments)
    models = os.environ.get("ADAPTIVE_SPEC_MODELS")
    return Options(
        keep=given.keep,
        files=Files(
            models=Path(models).resolve() if models else ROOT / "out" / "models",
            output=given.output.resolve(),
        ),
    )
