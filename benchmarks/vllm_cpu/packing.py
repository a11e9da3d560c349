"""A step trace in one small file, and back: for keeping it in a repository.

Times begin at 0 and request ids become KIND-NUMBER; nothing else is changed.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec

from adaptive_spec.operation.trace import read_trace

SUFFIX = ".jsonl.gz"


def pack(directory: Path, path: Path) -> None:
    """Write the steps of a trace's folder to one compressed file."""
    from demo.traffic import kind_of  # needs httpx, which the simulator's environment lacks

    numbers: dict[str, int] = {}
    lines: list[bytes] = []
    began: float | None = None
    for step in read_trace(directory):
        if began is None:
            began = step["now"] - (step["seconds"] or 0.0)
        step["now"] = round(step["now"] - began, 6)
        step["ids"] = [
            f"{kind_of(name)}-{numbers.setdefault(name, len(numbers) + 1)}" for name in step["ids"]
        ]
        lines.append(msgspec.json.encode(step))
    # Without a time of its own, so that the same steps make the same bytes.
    path.write_bytes(gzip.compress(b"\n".join([*lines, b""]), 9, mtime=0))


def unpack(path: Path, directory: Path) -> None:
    """Make a trace's folder of a packed file."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "steps-0-000000.jsonl").write_bytes(gzip.decompress(path.read_bytes()))
