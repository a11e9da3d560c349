"""Per-request hints from `vllm_xargs` (offline: `SamplingParams.extra_args`), as flat keys.

The keys and values are those of `adaptive_spec.engines.hints`, with ``adaptive_spec_`` before the
key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adaptive_spec.engines.hints import NO_HINTS, HintParser, Hints

PREFIX = "adaptive_spec_"


class HintReader:
    """Reads the hints of this process's requests."""

    def __init__(self, ignored: Callable[[str], None]) -> None:
        """`ignored` is told the key of every value that could not be used."""
        self._parser = HintParser(ignored, prefix=PREFIX)

    def read(self, extra_args: Mapping[str, Any] | None) -> Hints:
        """The hints among a request's extra arguments."""
        if not extra_args:
            return NO_HINTS
        given = [
            (key.removeprefix(PREFIX), value)
            for key, value in extra_args.items()
            if isinstance(key, str) and key.startswith(PREFIX)
        ]
        return self._parser.parse(given) if given else NO_HINTS
