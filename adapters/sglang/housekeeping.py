"""Removal of what changes of K leave behind in SGLang: log lines, and a list that only grows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

_NOISY = {
    "sglang.srt.speculative.eagle_worker_v2": "Switch adaptive runtime state",
    "sglang.srt.speculative.adaptive_spec_params": "Adaptive spec params updated",
}
OUR_SOURCE = "adaptive_spec.ngram"
TREE_SOURCE = "adaptive_spec.tree"
_REPEATED = ("adaptive_spec.restore", OUR_SOURCE, TREE_SOURCE)
_TRIM_EVERY = 256


class Quiet(logging.Filter):
    """Filter of SGLang's line per change of K while we steer; the status file has counts."""

    def __init__(self, begins: str, steering: Callable[[], bool]) -> None:
        super().__init__()
        self._begins = begins
        self._steering = steering

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for the lines to drop."""
        return not (str(record.msg).startswith(self._begins) and self._steering())


def quieten(steering: Callable[[], bool]) -> None:
    """Drop SGLang's log lines about changes of K while `steering` returns true."""
    for name, begins in _NOISY.items():
        logging.getLogger(name).addFilter(Quiet(begins, steering))


class OverridesTrim:
    """Bound on SGLang's list of configuration overrides, which grows with every change of K.

    The list is replayed in order to say what the configuration is now, so of entries that set the
    same values again and again only the last one counts.
    """

    def __init__(self, runtime_context: Any) -> None:
        self._context = runtime_context
        self._steps = 0

    def step(self) -> None:
        """Trim the list once in `_TRIM_EVERY` calls."""
        self._steps += 1
        if self._steps % _TRIM_EVERY == 0:
            trim(self._context._overrides_log)


def trim(log: list[tuple[str, dict[str, Any]]]) -> None:
    """Drop, in place, repeated entries of the same source and keys but the last of them."""
    kept: list[tuple[str, dict[str, Any]]] = []
    seen: set[tuple[str, frozenset[str]]] = set()
    for source, fields in reversed(log):
        key = (source, frozenset(fields))
        if source in _REPEATED and key in seen:
            continue
        seen.add(key)
        kept.append((source, fields))
    log[:] = reversed(kept)
