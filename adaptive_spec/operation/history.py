"""Ten minutes of history, a row a second, for viewers that open later."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

_SECONDS = 1.0
_MOST_ROWS = 600

# ``requests`` adds up the batch of each step; ``measuring``, ``off`` and ``engine`` are steps.
COLUMNS = (
    *("at", "steps", "requests", "verified", "accepted", "emitted", "measuring", "off", "engine"),
    *("measured", "predicted", "no_speculation", "engine_k", "planned", "depth"),
)
"""``at`` in Unix seconds; ``steps`` to ``engine`` count since start; others of that moment."""


class History:
    """Rows of figures, at most one a second and 600 in all; nothing while the engine is idle."""

    def __init__(self) -> None:
        self._rows: deque[list[float | None]] = deque(maxlen=_MOST_ROWS)
        self._next = 0.0

    def due(self, now: float) -> bool:
        """Whether a second has passed since the last row; `now` in monotonic seconds."""
        return not 0.0 <= self._next - now <= _SECONDS

    def add(self, now: float, status: Mapping[str, Any]) -> None:
        """Add a row of a status."""
        self._next = now + _SECONDS
        kinds, goodput = status["steps_by_kind"], status["goodput"]
        estimates = status["estimates"]
        self._rows.append(
            [
                round(time.time(), 2),
                status["steps"],
                sum(status["requests_by_k"].values()),
                status["verified_tokens"],
                status["accepted_tokens"],
                status["emitted_tokens"],
                *(kinds.get(name, 0) for name in ("measuring", "off", "engine")),
                *(goodput.get(name) for name in ("measured", "predicted")),
                *(estimates.get(name) for name in ("no_speculation", "engine_k", "planned")),
                status["last_depth"],
            ]
        )

    def snapshot(self) -> dict[str, Any]:
        """Return ``columns`` and ``rows``, the oldest first."""
        return {"columns": list(COLUMNS), "rows": list(self._rows)}
