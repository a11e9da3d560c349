"""Table of an engine's versions that an adapter supports.

What decides whether a version runs is its source (`source_check`). The table says what is known
beyond that: which versions were executed, and that others run with a warning, or not at all if the
operator does not allow untested versions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from adaptive_spec.errors import UnsupportedEngineError


class KnownVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Version of an engine and how it was checked.

    Attributes:
        version: release of the engine; a local part such as ``+cpu`` is ignored.
        route: way in which K reaches the engine, or the part of the engine that was run.
        checked: code that was run or read, and the machine.
        methods: methods of speculation that were run; none where only the source was compared.
        lacks: features that the source lacks; see the adapter's `facts`.
    """

    version: str
    route: str
    checked: str
    methods: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    @property
    def executed(self) -> bool:
        """Return whether the adapter was run with this version."""
        return bool(self.methods)


@dataclass(frozen=True, kw_only=True)
class VersionTable:
    """The versions that an adapter was written for, ascending.

    Attributes:
        engine: the engine's name.
        rows: one row for each version and route.
        go_on: way to run the engine without the adapter, such as ``unset VARIABLE``.
    """

    engine: str
    rows: tuple[KnownVersion, ...]
    go_on: str

    @property
    def known(self) -> str:
        """The range of versions, for people."""
        ends = dict.fromkeys((self.rows[0].version, self.rows[-1].version))
        return " to ".join(ends)

    def accepts(self, version: str) -> bool:
        """Return whether a version is a release between the oldest and the newest of the table."""
        number = release_number(version)
        oldest, newest = (release_number(row.version) for row in (self.rows[0], self.rows[-1]))
        if number is None or oldest is None or newest is None:
            return False
        return oldest <= number <= newest

    def rows_of(self, version: str) -> list[KnownVersion]:
        """Return the rows of exactly this release."""
        return [row for row in self.rows if row.version == release(version)]

    def was_executed(self, version: str) -> bool:
        """Return whether the adapter was run with exactly this release."""
        return any(row.executed for row in self.rows_of(version))

    def admit(self, version: str, *, allow_untested: bool = True) -> str:
        """Return a warning about a version that was not executed; empty for one that was.

        Raises UnsupportedEngineError, one line with the remedies, for a version outside of the
        table if untested versions are not allowed.
        """
        if self.was_executed(version):
            return ""
        if self.accepts(version):
            return f"{self.engine} {version} was compared with its source only, not executed"
        if not allow_untested:
            raise UnsupportedEngineError(
                f"{self.engine} {version} is untested by adaptive-spec and `allow_untested` is "
                f"false; install a tested version ({self.known}), upgrade adaptive-spec, or "
                f"{self.go_on}"
            )
        return f"{self.engine} {version} is untested; tested versions: {self.known}"

    def markdown(self) -> str:
        """Return the table for the documentation."""
        rows = [(row.version, row.route, row.checked) for row in self.rows]
        lines = [(self.engine, "route", "what was checked"), ("---", "---", "---"), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def release(version: str) -> str:
    """Return the version without its local part: ``0.32.0`` for ``0.32.0+cpu``."""
    return version.partition("+")[0]


def release_number(version: str) -> tuple[int, int, int] | None:
    """Return major, minor and patch number of a final or post-release; None for others."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?", release(version))
    if match is None:
        return None
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)
