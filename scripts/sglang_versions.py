"""Run the tests marked `every_version` on SGLang versions other than the installed one.

    python scripts/sglang_versions.py VERSION...

Needs the environment `sglang` (`scripts/environments.py sglang`), which lends torch and the rest: a
wheel is unzipped into a folder in front of PYTHONPATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from engine_wheels import DownloadError, unpacked
from environments import ROOT, python_of

PLATFORM = "manylinux_2_34_x86_64"
STAND_IN = ROOT / "tests/sglang/stand_in"


def command(version: str) -> tuple[list[str | Path], dict[str, str]]:
    """Return the tests of a version as a command and its variables. Raises DownloadError."""
    path = map(str, (unpacked("sglang", version, PLATFORM), STAND_IN, ROOT))
    variables = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path),
        "SGLANG_USE_CPU_ENGINE": "1",
    }
    pytest = [
        python_of("sglang"),
        "-m",
        "pytest",
        "-v",
        "--timeout=900",
        "--durations=10",
        "-m",
        "every_version",
    ]
    return [*pytest, "tests/sglang"], variables


def main(versions: Sequence[str]) -> int:
    """Run each version; the exit status of the last one that failed."""
    status = 0
    for version in versions:
        print(f"##### SGLang {version} #####", flush=True)
        try:
            tests, variables = command(version)
        except DownloadError as error:
            print(f"error: {error}")
            status = 1
            continue
        done = subprocess.run(tests, cwd=ROOT, env=os.environ | variables, check=False)
        status = done.returncode or status
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
