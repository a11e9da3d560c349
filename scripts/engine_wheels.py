"""Wheels and sources of engines, unpacked to be read or to stand in front of PYTHONPATH.

The folders lie beside the virtual environments. Nothing is installed: an environment whose packages
fit lends torch and the rest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
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


def source_distribution(distribution: str, version: str, part: str) -> Path:
    """Folder with one top-level folder of a source distribution, downloaded once.

    Raises DownloadError.
    """
    folder = environments_folder() / "wheels" / f"{distribution}-{version}.{part}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        tools, into = Path(temporary) / "tools", Path(temporary) / "into"
        # pip prepares metadata before it hands a source distribution over.
        _pip("install", "--target", tools, "setuptools-rust", "setuptools-scm", "packaging")
        environment = {
            "PYTHONPATH": str(tools),
            "VLLM_TARGET_DEVICE": "empty",
            "VLLM_VERSION_OVERRIDE": version,
        }
        _pip(
            *("download", "--no-deps", "--no-build-isolation", "--no-binary", distribution),
            *("--dest", temporary, f"{distribution}=={version}"),
            env=environment,
        )
        [archive] = Path(temporary).glob("*.tar.gz")
        with tarfile.open(archive) as source:
            inside = f"{archive.name.removesuffix('.tar.gz')}/{part}/"
            members = [one for one in source.getmembers() if one.name.startswith(inside)]
            source.extractall(into, members, filter="data")
        next(into.iterdir()).rename(folder)
    return folder


def _download(distribution: str, version: str, platform: str, folder: Path) -> Path:
    _pip(
        *("download", "--no-deps", "--only-binary=:all:", "--implementation", "cp"),
        *("--abi", "cp311", "--abi", "abi3", "--abi", "none", "--python-version", "3.11"),
        *("--platform", platform, "--platform", "any"),
        *("--dest", folder, f"{distribution}=={version}"),
    )
    [wheel] = folder.glob("*.whl")
    return wheel


def _pip(what: str, *arguments: str | Path, env: dict[str, str] | None = None) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pip", what, "--quiet", *arguments],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        said = ran.stderr.strip().splitlines() or ["it does not say why"]
        raise DownloadError(f"pip {what} {arguments[-1]}: {said[-1]}")
