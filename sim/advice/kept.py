"""Where the prediction of traces is kept: by their content and by the code that makes it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

import adaptive_spec
import adaptive_spec.policies
import adaptive_spec.sim
from adaptive_spec.bounded_read import open_regular
from adaptive_spec.kept_results import kept_path
from adaptive_spec.sim.step_trace import RecordedTrace


def prediction_path(trace: RecordedTrace, options: dict[str, object]) -> Path | None:
    """Return the file; None if the trace cannot be read."""
    key = hashlib.sha256(msgspec.json.encode(options))
    try:
        for segment in trace.segments:
            with open_regular(segment.path) as file:
                left = segment.size
                while block := file.read(min(left, 1 << 20)):
                    key.update(block)
                    left -= len(block)
            key.update(f" {segment.size}\n".encode())
        for package in (adaptive_spec, adaptive_spec.policies, adaptive_spec.sim):
            for path in sorted(Path(package.__path__[0]).rglob("*.py")):
                found = path.stat()
                key.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    except OSError:
        return None
    return kept_path("advice", key.hexdigest())
