"""Engine versions: parsing, the refusal of an untested version, the table for the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from adaptive_spec.errors import UnsupportedEngineError


def release(version: str) -> str:
    """Strip the local part of a version: ``0.32.0+cpu`` becomes ``0.32.0``."""
    return version.partition("+")[0]


def release_number(version: str) -> tuple[int, int, int] | None:
    """Return major, minor and patch number of a final or post-release; None for other versions."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?", release(version))
    if match is None:
        return None
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)


def untested(engine: str, version: str, tested: str, switch_off: str) -> UnsupportedEngineError:
    """Build the one-line refusal of an untested version, with the remedies.

    Args:
        engine: name of the engine.
        version: the installed version.
        tested: tested versions and a pointer to more, as text.
        switch_off: command that disables the plugin, such as ``unset VARIABLE``.
    """
    return UnsupportedEngineError(
        f"{engine} {version} is untested by adaptive-spec; install a tested version ({tested}), "
        f"upgrade adaptive-spec, or {switch_off}"
    )


def markdown_table(headings: Sequence[str], rows: Iterable[msgspec.Struct]) -> str:
    """Render a table for the documentation: one column per field of a row, under its heading."""
    lines = [headings, ["---"] * len(headings)]
    for row in rows:
        values = [str(value) for value in msgspec.structs.astuple(row)]
        if len(values) != len(headings):
            raise ValueError(f"{len(headings)} headings for {len(values)} fields")
        lines.append(values)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
