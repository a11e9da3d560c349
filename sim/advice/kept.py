"""Where the prediction of traces is kept: by their content and by the code that makes it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

import adaptive_spec
import adaptive_spec.policies
import adaptive_spec.sim
from adaptive_spec.kept_results import kept_path
from adaptive_spec.sim.step_trace import segment_folders


def prediction_path(traces: Sequence[Path], options: dict[str, object]) -> Path | None:
    """Return the file; None if the traces cannot be read."""
    key = hashlib.sha256(msgspec.json.encode(options))
    try:
        for path in _files(traces):
            with path.open("rb") as file:
                key.update(hashlib.file_digest(file, "sha256").digest())
        for package in (adaptive_spec, adaptive_spec.policies, adaptive_spec.sim):
            for path in sorted(Path(package.__path__[0]).rglob("*.py")):
                found = path.stat()
                key.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    except OSError:
        return None
    return kept_path("advice", key.hexdigest())


def _files(traces: Sequence[Path]) -> Iterable[Path]:
    for trace in traces:
        if not trace.is_dir():
            yield trace
            continue
        for folder in segment_folders(trace):
            yield from sorted(folder.glob("steps-*.jsonl"))
