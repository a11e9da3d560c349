"""Results by key, in a file that survives a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Results:
    """A file with one JSON line per result: ``{"key": ..., "result": ...}``.

    A line is written when its result is there. A result that is in the file is not measured again;
    of several lines with one key the last counts.

    Attributes:
        found: results by key.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[str, Any] = {}
        if not path.exists():
            return
        whole = path.read_bytes()
        kept = whole[: whole.rfind(b"\n") + 1]
        if kept != whole:  # a run was killed while it wrote: the next line must not continue this
            path.write_bytes(kept)
        for line in kept.decode("utf-8").splitlines():
            row = json.loads(line)
            self.found[row["key"]] = row["result"]

    def __contains__(self, key: str) -> bool:
        return key in self.found

    def add(self, key: str, result: Any) -> None:
        """Keep a result, at once."""
        line = json.dumps({"key": key, "result": result}) + "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)
        # As a later run reads it: keys of objects become text.
        self.found[key] = json.loads(line)["result"]
