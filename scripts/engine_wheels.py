"""Wheels of engines, unzipped into folders that stand in front of PYTHONPATH or are only read.

The folders lie beside the virtual environments. Nothing is installed: an environment whose packages
fit lends torch and the rest.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from environments import environments_folder

ARM = "manylinux_2_28_aarch64"
"""Its CPU wheels of vLLM are a third as large; Python is the same on all."""
X86 = "manylinux_2_28_x86_64"


class DownloadError(RuntimeError):
    """The wheel can't be had; the message says why."""


def unpacked(
    distribution: str, version: str, platform: str = X86, *, compiled: bool = True
) -> Path:
    """Folder of an unzipped wheel, downloaded once.

    Args:
        distribution: name on the package index.
        version: its release.
        platform: of the wheel.
        compiled: with its compiled parts, most of its size; without them, a whole wheel that is at
            hand will do.

    Raises DownloadError.
    """
    wheels = environments_folder() / "wheels"
    whole = wheels / f"{distribution}-{version}"
    folder = whole if compiled else wheels / f"{distribution}-{version}.py"
    for found in (whole, folder):
        if found.is_dir():
            return found
    wheels.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheels) as temporary:
        into = Path(temporary) / "unzipped"
        file = _download(distribution, version, platform, Path(temporary))
        with zipfile.ZipFile(file) as wheel:
            names = [name for name in wheel.namelist() if compiled or not name.endswith(".so")]
            wheel.extractall(into, names)
        try:
            into.rename(folder)
        except OSError:  # another run was faster
            shutil.rmtree(into)
    return folder


def _download(distribution: str, version: str, platform: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--abi", "abi3", "--abi", "none"]
    command += ["--python-version", "3.11", "--platform", platform, "--platform", "any"]
    command += ["--dest", str(folder), f"{distribution}=={version}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if ran.returncode or len(wheels) != 1:
        said = ran.stderr.strip().splitlines() or ["no wheel"]
        raise DownloadError(f"pip could not download {distribution} {version}: {said[-1]}")
    return wheels[0]
