"""Does an engine's source still have what an adapter relies on? Nothing of it is imported.

An adapter lists facts by feature: what does not work without them. A feature whose facts all hold
is available. The check runs on the installed engine before anything is hooked, so that a changed
engine is one clear refusal, or one feature less, and no fault in its step loop; and on checkouts
and unpacked wheels of versions that cannot be executed here.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from adaptive_spec.engines.source_facts import Fact, forget_files, look_up
from adaptive_spec.errors import DataError, UnsupportedEngineError

USABLE = "usable"

_VERSION_FILES = ("_version.py", "version.py")
_VERSION = re.compile(r"^__version__\s*=.*?['\"]([^'\"]+)['\"]", re.MULTILINE)
_MOST_NAMED = 3
"""Problems that a refusal names."""


class Finding(msgspec.Struct, frozen=True):
    """One fact, looked up.

    Attributes:
        route: the feature, or the way of steering, that does not work without it.
        what: the fact, in a few words.
        file: where it was found, or looked for.
        problem: what differs; empty if it is as expected.
        why: what it is relied on for.
    """

    route: str
    what: str
    file: str
    problem: str
    why: str


class SourceReport(msgspec.Struct, frozen=True):
    """What was found in a tree.

    Attributes:
        engine: name of the engine.
        version: of the tree; empty if it does not say.
        tree: the package folder that was looked at.
        findings: all facts.
        routes: feature -> ``usable``, or its first problem.
        problems: what somebody should act on; empty if K can be steered.
    """

    engine: str
    version: str
    tree: str
    findings: list[Finding]
    routes: dict[str, str]
    problems: list[str]

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """For a table: feature, fact, file, outcome."""
        return [(f.route, f.what, f.file, f.problem or "as expected") for f in self.findings]

    @property
    def available(self) -> frozenset[str]:
        """Features whose facts all hold."""
        return frozenset(route for route, state in self.routes.items() if state == USABLE)


@dataclass(frozen=True, kw_only=True)
class EngineSource:
    """An engine's source, and the facts that an adapter relies on in it.

    Attributes:
        title: the engine's name, for people.
        package: its package.
        landmark: a folder of the package by which a source tree is known.
        facts: feature -> facts; their files are relative to the package.
        bases: features that steer K; without one of them there is nothing to switch on.
        go_on: how the user goes on without us, such as ``unset VARIABLE``.
    """

    title: str
    package: str
    landmark: str
    facts: Mapping[str, tuple[Fact, ...]]
    bases: tuple[str, ...]
    go_on: str

    def check_tree(self, path: Path) -> SourceReport:
        """Look for every fact in a checkout, an unpacked wheel, or the package's folder.

        Raises DataError, one line, if that is no source of this engine.
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
        """Return what was found in the installed engine.

        Args:
            features: what must work.
            package: the package's folder; None looks for the installed one.

        Raises UnsupportedEngineError, one line with the remedy, if one of the features does not
        work.
        """
        package = package or self.installed_folder()
        if package is None:
            raise UnsupportedEngineError(
                f"the source of {self.title} is not where its package says; {self.go_on}"
            )
        report, wanted = self.check_tree(package), set(features)
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

    def installed_folder(self) -> Path | None:
        """Return the folder of the installed package, without importing it."""
        try:
            spec = importlib.util.find_spec(self.package)
        except (ImportError, ValueError):
            return None
        folders = list(spec.submodule_search_locations or []) if spec else []
        return Path(folders[0]) if folders else None

    def package_folder(self, path: Path) -> Path:
        """Return the package's folder in, or at, a path. Raises DataError if there is none."""
        for folder in (path, path / self.package):
            if (folder / self.landmark).is_dir():
                return folder
        raise DataError(
            f"{path}: no {self.title} source; give a checkout, an unpacked wheel or its folder "
            f"{self.package}"
        )


def version_of(package: Path) -> str:
    """Return the version that a package says it has; empty without one (a checkout)."""
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
