"""Predictions kept on disk by the content of the traces and of the code that made them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

import adaptive_spec
import adaptive_spec.policies
import adaptive_spec.sim
from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.sim.advice.advice import Predicted
from adaptive_spec.sim.step_trace import segment_folders

_MOST_KEPT = 64
_MOST_BYTES = 1 << 22


def kept_file(traces: Sequence[Path], options: dict[str, object]) -> Path | None:
    """Return where the prediction of these traces with these options is kept.

    It lies in ``$XDG_CACHE_HOME`` or ``~/.cache``. None if the traces cannot be read, or there is
    no home.
    """
    key = hashlib.sha256(msgspec.json.encode(options))
    try:
        for path in _files(traces):
            key.update(f"{path.name} {path.stat().st_size}\n".encode())
            with path.open("rb") as file:
                key.update(hashlib.file_digest(file, "sha256").digest())
        for package in (adaptive_spec, adaptive_spec.policies, adaptive_spec.sim):
            for path in sorted(Path(package.__path__[0]).rglob("*.py")):
                found = path.stat()
                key.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except (OSError, RuntimeError):
        return None
    return base / "adaptive-spec-advice" / f"{key.hexdigest()}.json"


def read_kept(path: Path) -> Predicted | None:
    """Return a prediction that was kept; None if there is none that can be used."""
    try:
        found: Predicted = decode_json(read_small_file(path, _MOST_BYTES), Predicted)
    except (OSError, ValueError):  # of another form, or damaged: it is made anew
        return None
    return found


def keep(path: Path, predicted: Predicted) -> bool:
    """Keep a prediction; the oldest make room. Return whether it could be written."""
    part = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(predicted))
        part.replace(path)
        others = sorted(path.parent.iterdir(), key=lambda each: each.stat().st_mtime_ns)
        for other in others[:-_MOST_KEPT]:
            other.unlink()
    except OSError:
        return False
    return True


def _files(traces: Sequence[Path]) -> Iterable[Path]:
    for trace in traces:
        if not trace.is_dir():
            yield trace
            continue
        for folder in segment_folders(trace):
            yield from sorted(folder.glob("steps-*.jsonl"))
