"""Which SGLang this adapter was written for, and what was executed.

A version between the oldest and the newest of the table is used if its source fulfils
`signatures`; anything else is refused with one line.
"""

from __future__ import annotations

import re

import msgspec

from adaptive_spec.errors import UnsupportedEngineError


class KnownVersion(msgspec.Struct, frozen=True):
    """One row of the table in the documentation."""

    version: str
    """Release of SGLang."""
    route: str
    """How K reaches SGLang there."""
    checked: str
    """What was run, and on which machine."""


KNOWN_VERSIONS: tuple[KnownVersion, ...] = (
    KnownVersion(
        version="0.5.14",
        route="parameters replaced in the controller; no NGRAM",
        checked="source of the wheel against `signatures`; never executed",
    ),
    KnownVersion(
        version="0.5.18",
        route="parameters replaced in the controller",
        checked="source of the wheel against `signatures`; never executed",
    ),
    KnownVersion(
        version="0.5.20",
        route="policy protocol",
        checked="executed on CPU, greedy only, same four",
    ),
    KnownVersion(
        version="0.5.23",
        route="policy protocol",
        checked="executed on CPU: EAGLE, EAGLE3, STANDALONE, NGRAM; TP = 2",
    ),
)

EXECUTED = ("0.5.20", "0.5.23")


def release(version: str) -> str:
    """The version without its local part: ``0.5.23+cpu`` is ``0.5.23``."""
    return version.partition("+")[0]


def in_range(version: str) -> bool:
    """Is this version between the oldest and the newest of the table?"""
    number = _number(version)
    if number is None:
        return False
    oldest, newest = (_number(row.version) for row in (KNOWN_VERSIONS[0], KNOWN_VERSIONS[-1]))
    assert oldest is not None
    assert newest is not None
    return oldest <= number <= newest


def was_executed(version: str) -> bool:
    """Was the adapter run with that version?"""
    return release(version) in EXECUTED


def require_in_range(version: str) -> None:
    """Raise UnsupportedEngineError, one line with the remedy, for a version outside the table."""
    if not in_range(version):
        raise UnsupportedEngineError(
            f"SGLang {version} is untested (known: {KNOWN_VERSIONS[0].version} to "
            f"{KNOWN_VERSIONS[-1].version}); install one of these, upgrade adaptive-spec, or "
            "unset ADAPTIVE_SPEC_CONFIG"
        )


def markdown_table() -> str:
    """The table of versions, for the documentation."""
    lines = ["| SGLang | route | what was checked |", "| --- | --- | --- |"]
    lines += [f"| {row.version} | {row.route} | {row.checked} |" for row in KNOWN_VERSIONS]
    return "\n".join(lines)


def _number(version: str) -> tuple[int, int, int] | None:
    match = re.match(r"(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?(?:\+.*)?$", version)
    if match is None:
        return None
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)
