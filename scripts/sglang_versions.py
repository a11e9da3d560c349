"""Run the tests marked `every_version` on SGLang versions other than the installed one.

    python scripts/sglang_versions.py VERSION... [--quick]

Needs the environment `sglang` (`scripts/environments.py sglang`), which lends torch and the rest: a
wheel is unzipped into a folder in front of PYTHONPATH.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from engine_wheels import DownloadError, unpacked
from environments import ROOT, python_of

PLATFORM = "manylinux_2_34_x86_64"
STAND_IN = ROOT / "tests/sglang/stand_in"


QUICK = "not sampled"
"""pytest's -k: without the tests that compare distributions, half of the time."""


def run(version: str, *options: str) -> int:
    """Run the selected tests on a version; pytest's exit status. Raises DownloadError."""
    path = map(str, (unpacked("sglang", version, PLATFORM), STAND_IN, ROOT))
    variables = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path),
        "SGLANG_USE_CPU_ENGINE": "1",
    }
    pytest = [python_of("sglang"), *"-m pytest -v --timeout=900 --durations=10".split()]
    command = [*pytest, "-m", "every_version", *options, "tests/sglang"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=False).returncode


def main() -> int:
    """Parse the command line and run each version."""
    parser = argparse.ArgumentParser(description="Run tests on other versions of SGLang.")
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--quick", action="store_true", help="without distributions of samples")
    arguments = parser.parse_args()
    status = 0
    for version in arguments.versions:
        print(f"##### SGLang {version} #####", flush=True)
        try:
            status |= run(version, *(["-k", QUICK] if arguments.quick else []))
        except DownloadError as error:
            print(f"error: {error}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
