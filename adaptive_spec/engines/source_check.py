"""Check of an engine's source against the facts that an adapter relies on.

An adapter lists facts by feature; a feature is available if all of its facts hold. The check runs
on the installed engine before the adapter hooks into it. A changed engine is then refused clearly
or loses one feature, and no fault reaches its step loop. The check also reads checkouts and
unpacked wheels; it never imports the engine.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from adaptive_spec import __version__
from adaptive_spec.engines.source_facts import Fact, files_of, forget_files, look_up
from adaptive_spec.errors import DataError, UnsupportedEngineError
from adaptive_spec.kept_results import keep, kept_path, read_kept

USABLE = "usable"

_VERSION_FILES = ("_version.py", "version.py")
_VERSION = re.compile(r"^__version__\s*=.*?['\"]([^'\"]+)['\"]", re.MULTILINE)
_MOST_NAMED = 3
"""Most problems that a refusal names."""


class Finding(msgspec.Struct, frozen=True):
    """Result of looking up one fact.

    Attributes:
        route: feature that needs the fact.
        what: the fact, in a few words.
        file: file of the fact, or the files searched for it.
        problem: difference from the fact; empty if it holds.
        why: use that the adapter makes of the fact.
    """

    route: str
    what: str
    file: str
    problem: str
    why: str


class SourceReport(msgspec.Struct, frozen=True):
    """Result of checking a source tree.

    Attributes:
        engine: name of the engine.
        version: version of the tree; empty if the tree does not state one.
        tree: the package folder.
        findings: results of all facts.
        routes: feature -> ``usable``, or its first problem.
        problems: problems that need action; empty if K can be steered.
    """

    engine: str
    version: str
    tree: str
    findings: list[Finding]
    routes: dict[str, str]
    problems: list[str]

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Table rows: feature, fact, file, result."""
        return [(f.route, f.what, f.file, f.problem or "as expected") for f in self.findings]

    @property
    def available(self) -> frozenset[str]:
        """Features whose facts all hold."""
        return frozenset(route for route, state in self.routes.items() if state == USABLE)

    @property
    def missing(self) -> dict[str, str]:
        """Features without all of their facts -> the first problem."""
        return {route: state for route, state in self.routes.items() if state != USABLE}


@dataclass(frozen=True, kw_only=True)
class EngineSource:
    """Facts that an adapter relies on in an engine's source.

    Attributes:
        title: the engine's name, for people.
        package: name of the engine's package.
        landmark: folder of the package that identifies a source tree.
        facts: feature -> facts; their files are relative to the package.
        bases: features that steer K; the adapter needs at least one.
        go_on: way to run the engine without the adapter, such as ``unset VARIABLE``.
    """

    title: str
    package: str
    landmark: str
    facts: Mapping[str, tuple[Fact, ...]]
    bases: tuple[str, ...]
    go_on: str

    def check_tree(self, path: Path) -> SourceReport:
        """Check a checkout, an unpacked wheel, or the package's folder.

        Raises DataError, one line, if the path has no source of this engine.
        """
        package = self.package_folder(path)
        findings = [
            Finding(feature, *look_up(fact, package), fact.why)
            for feature, facts in self.facts.items()
            for fact in facts
        ]
        forget_files()
        routes = {feature: _state(findings, feature) for feature in self.facts}
        unusable = [f"{base}: {routes[base]}" for base in self.bases if routes[base] != USABLE]
        return SourceReport(
            engine=self.package.replace("_", "-"),
            version=version_of(package),
            tree=str(package),
            findings=findings,
            routes=routes,
            problems=unusable if len(unusable) == len(self.bases) else [],
        )

    def require(self, features: Iterable[str], package: Path | None = None) -> SourceReport:
        """Check the installed engine; the result is kept until one of the files changes.

        Args:
            features: required features.
            package: the package's folder; None looks for the installed one.

        Raises UnsupportedEngineError, one line with the remedy, if a required feature is not
        available.
        """
        package = package or self.installed_folder()
        if package is None:
            raise UnsupportedEngineError(
                f"the source of {self.title} is not where its package says; {self.go_on}"
            )
        path, wanted = kept_path("facts", self._key(package)), set(features)
        report: SourceReport | None = read_kept(path, SourceReport)
        if report is None:
            report = self.check_tree(package)
            keep(path, report)
        problems = [
            f"{found.what} {found.problem} [{found.file}]"
            for found in report.findings
            if found.problem and found.route in wanted
        ]
        if problems:
            raise UnsupportedEngineError(
                f"this {self.title} {report.version} has changed where adaptive-spec hooks in "
                f"({'; '.join(problems[:_MOST_NAMED])}); install a tested version, see "
                f"`adaptive-spec doctor`, or {self.go_on}"
            )
        return report

    def _key(self, package: Path) -> str:
        """Return a digest of the facts, and of size and time of all files that they name.

        The installer's record of the package's files is part of it: times may be constant.
        """
        key = hashlib.sha256(f"{__version__} {package} {self}".encode())
        facts = (fact for each in self.facts.values() for fact in each)
        files = set().union(*map(files_of, facts), _VERSION_FILES)
        for file in sorted(files):
            with contextlib.suppress(OSError):
                found = (package / file).stat()
                key.update(f"{file} {found.st_size} {found.st_mtime_ns}\n".encode())
        for record in sorted(package.parent.glob(f"{self.package}*.dist-info/RECORD")):
            with contextlib.suppress(OSError):
                key.update(record.read_bytes())
        return key.hexdigest()

    def installed_folder(self) -> Path | None:
        """Return the folder of the installed package, without importing it."""
        try:
            spec = importlib.util.find_spec(self.package)
        except (ImportError, ValueError):
            return None
        folders = list(spec.submodule_search_locations or []) if spec else []
        return Path(folders[0]) if folders else None

    def package_folder(self, path: Path) -> Path:
        """Return the package's folder in, or at, a path. Raises DataError without one."""
        for folder in (path, path / self.package):
            if (folder / self.landmark).is_dir():
                return folder
        raise DataError(
            f"{path}: no {self.title} source; give a checkout, an unpacked wheel or its folder "
            f"{self.package}"
        )


def version_of(package: Path) -> str:
    """Return the version that a package states; empty without one (a checkout)."""
    for name in _VERSION_FILES:
        file = package / name
        match = _VERSION.search(file.read_text(errors="replace")) if file.is_file() else None
        if match:
            return match.group(1)
    return ""


def _state(findings: list[Finding], feature: str) -> str:
    problems = [found for found in findings if found.route == feature and found.problem]
    if not problems:
        return USABLE
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0].what} {problems[0].problem}{more}"
