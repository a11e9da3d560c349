"""Installation and removal of the start-up hook in an environment.

The hook is two files in site-packages: a ``.pth`` of one line, which Python runs at the start of
every interpreter, and the small module that the line imports. A command writes them; the wheel does
not contain them, because every user of the wheel would run them. TensorRT-LLM has no plugin
mechanism that reaches its spawned workers.
"""

from __future__ import annotations

import py_compile
import sysconfig
from pathlib import Path

import msgspec

from adaptive_spec.errors import ConfigError

PTH = "adaptive_spec_trtllm.pth"
MODULE = "_adaptive_spec_trtllm"
_SOURCE = Path(__file__).with_name("hook_file.py")


class HookState(msgspec.Struct, frozen=True):
    """State of the hook in a site-packages folder.

    Attributes:
        folder: the folder.
        installed: both files exist.
        current: both files are from this version.
    """

    folder: str
    installed: bool
    current: bool


def site_packages() -> Path:
    """Return the folder in which this interpreter looks for ``.pth`` files."""
    return Path(sysconfig.get_path("purelib"))


def hook_state(folder: Path | None = None) -> HookState:
    """Return the state of the hook."""
    folder = folder or site_packages()
    pth, module = _files(folder)
    installed = pth.is_file() and module.is_file()
    current = (
        installed and module.read_bytes() == _SOURCE.read_bytes() and pth.read_text() == _line()
    )
    return HookState(str(folder), installed, current)


def install_hook(folder: Path | None = None) -> list[Path]:
    """Write both files and return their paths. Raises ConfigError, one line."""
    folder = folder or site_packages()
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; give the site-packages of TensorRT-LLM")
    pth, module = _files(folder)
    try:
        # The module first: a line without it would print an error at every start.
        module.write_bytes(_SOURCE.read_bytes())
        # Compiling takes longer than all the hook does; some servers forbid it at run time.
        py_compile.compile(str(module))
        pth.write_text(_line())
    except OSError as error:
        raise ConfigError(f"{folder}: cannot write the hook: {error.strerror or error}") from error
    return [module, pth]


def remove_hook(folder: Path | None = None) -> list[Path]:
    """Delete the files of `install_hook` and return their paths. Raises ConfigError, one line."""
    folder = folder or site_packages()
    removed = []
    try:
        for file in _files(folder):
            if file.is_file():
                file.unlink()
                removed.append(file)
        for file in (folder / "__pycache__").glob(f"{MODULE}.*.pyc"):
            file.unlink()
    except OSError as error:
        raise ConfigError(f"{file}: cannot delete it: {error.strerror or error}") from error
    return removed


def _files(folder: Path) -> tuple[Path, Path]:
    return folder / PTH, folder / f"{MODULE}.py"


def _line() -> str:
    return f"import {MODULE}\n"
