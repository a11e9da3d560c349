"""What every adapter says about versions of its engine: a table, a comparison and a refusal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from adaptive_spec.errors import UnsupportedEngineError


def release(version: str) -> str:
    """The version without its local part: ``0.32.0+cpu`` is ``0.32.0``."""
    return version.partition("+")[0]


def release_number(version: str) -> tuple[int, int, int] | None:
    """Major, minor and patch number of a final or post-release, None of anything else."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?", release(version))
    if match is None:
        return None
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)


def untested(engine: str, version: str, tested: str, switch_off: str) -> UnsupportedEngineError:
    """The refusal, one line with the remedies.

    Args:
        engine: its name.
        version: the one that is installed.
        tested: versions that would do, and where more is said, as text.
        switch_off: how the user goes on without us, such as ``unset VARIABLE``.
    """
    return UnsupportedEngineError(
        f"{engine} {version} is untested by adaptive-spec; install a tested version ({tested}), "
        f"upgrade adaptive-spec, or {switch_off}"
    )


def markdown_table(headings: Sequence[str], rows: Iterable[msgspec.Struct]) -> str:
    """A table for the documentation: one column per field of a row, under its heading."""
    lines = [headings, ["---"] * len(headings)]
    for row in rows:
        values = [str(value) for value in msgspec.structs.astuple(row)]
        if len(values) != len(headings):
            raise ValueError(f"{len(headings)} headings for {len(values)} fields")
        lines.append(values)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
