"""Where a profile was held against measurements with drafts, and how far off it was.

`python -m benchmarks.validation --record` writes ``validity.json``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

FILE = Path(__file__).with_suffix(".json")
UNKNOWN_ERROR = 0.25
"""Error of a ratio where nothing was compared: as far as profiles were off at 32 clients and more
before their engine's terms were known."""


class Validity(msgspec.Struct, frozen=True, kw_only=True):
    """The range in which ratios to no speculation were compared, and their errors there.

    Attributes:
        engine: name and version.
        drafter: whose drafts were verified.
        clients: fewest and most requests at once.
        context: tokens, shortest and longest.
        k: deepest draft.
        cells: how many were compared; nothing was fitted on them.
        mean_error: signed, simulated over measured less one.
        error: nine of ten cells are within it, either way.
    """

    engine: str
    drafter: str
    clients: tuple[int, int]
    context: tuple[int, int]
    k: int
    cells: int
    mean_error: float
    error: float

    def left_by(self, *, clients: float, context: float, k: int) -> list[str]:
        """Return in which ways a run leaves the range."""
        found = []
        if clients > self.clients[1] + 0.5:
            found.append(f"{clients:.0f} requests at once")
        if context > self.context[1]:
            found.append(f"contexts of {context:,.0f} tokens")
        if k > self.k:
            found.append(f"K up to {k}")
        return found

    @property
    def shown(self) -> str:
        """The range, for people."""
        return (
            f"{self.engine}, {self.drafter}, up to {self.clients[1]} requests, "
            f"{self.context[1]:,} tokens of context and K = {self.k}"
        )


@lru_cache(maxsize=1)
def validities() -> dict[str, Validity]:
    """Return what is known of each shipped profile that was compared."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Validity])


def expected_error(name: str, *, clients: float, context: float, k: int) -> tuple[float, str]:
    """Return the error to expect of a ratio to no speculation, and why it is not known better.

    Args:
        name: of the profile.
        clients: requests at once, at the most loaded time of the run.
        context: mean tokens of a request.
        k: Kmax.

    Returns:
        Relative error, either way; one line for people, "" inside the validated range.
    """
    known = validities().get(name)
    if known is None:
        return UNKNOWN_ERROR, f"{name} was never held against a measurement with drafts"
    left = known.left_by(clients=clients, context=context, k=k)
    if not left:
        return known.error, ""
    return max(known.error, UNKNOWN_ERROR), (
        f"{name} was validated for {known.shown}; this run has {', '.join(left)}"
    )
