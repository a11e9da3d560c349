"""`adaptive-spec demo`: runs demo/run.py of a checkout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import adaptive_spec
from adaptive_spec.errors import AdaptiveSpecError

SCRIPT = Path("demo") / "run.py"
MODELS = Path("benchmarks") / "real_model" / "build.py"


def demo_script(places: Iterable[Path] | None = None) -> Path:
    """Return the demo of the checkout around the working directory, or of an editable install.

    Raises AdaptiveSpecError if neither is a checkout: packages hold no demo and no models.
    """
    if places is None:
        here = Path.cwd()
        places = (here, *here.parents, Path(adaptive_spec.__file__).resolve().parents[1])
    for place in places:
        if (place / SCRIPT).is_file() and (place / MODELS).is_file():
            return place / SCRIPT
    raise AdaptiveSpecError(
        "the demo and its models are in the source checkout, not in the package: "
        "run this command in a clone of adaptive-spec"
    )


def run_demo(arguments: Sequence[str]) -> None:
    """Replace this process by the demo."""
    command = [sys.executable, str(demo_script()), *arguments]
    os.execv(sys.executable, command)
