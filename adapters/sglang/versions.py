"""Which SGLang this adapter was written for, and what was executed.

A version between the oldest and the newest of the table is used if its source fulfils
`signatures`; anything else is refused with one line.
"""

from __future__ import annotations

import msgspec

from adaptive_spec.engines import versions
from adaptive_spec.engines.versions import release, release_number, untested


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
        checked="executed on CPU, greedy only: EAGLE, EAGLE3, STANDALONE, NGRAM",
    ),
    KnownVersion(
        version="0.5.23",
        route="policy protocol",
        checked="executed on CPU, sampled as well: the same four; each with TP = 2",
    ),
)

EXECUTED = ("0.5.20", "0.5.23")


def known_range() -> str:
    """The oldest and the newest version of the table, for people."""
    return f"{KNOWN_VERSIONS[0].version} to {KNOWN_VERSIONS[-1].version}"


def in_range(version: str) -> bool:
    """Is this version between the oldest and the newest of the table?"""
    number = release_number(version)
    if number is None:
        return False
    oldest, newest = (
        release_number(row.version) for row in (KNOWN_VERSIONS[0], KNOWN_VERSIONS[-1])
    )
    return oldest is not None and newest is not None and oldest <= number <= newest


def was_executed(version: str) -> bool:
    """Was the adapter run with that version?"""
    return release(version) in EXECUTED


def require_in_range(version: str) -> None:
    """Raise UnsupportedEngineError, one line with the remedy, for a version outside the table."""
    if not in_range(version):
        tested = f"{known_range()}, see docs/sglang.md"
        raise untested("SGLang", version, tested, "unset ADAPTIVE_SPEC_CONFIG")


def markdown_table() -> str:
    """The table of versions, for the documentation."""
    return versions.markdown_table(("SGLang", "route", "what was checked"), KNOWN_VERSIONS)
