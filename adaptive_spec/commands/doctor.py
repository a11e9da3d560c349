"""Report of `adaptive-spec doctor`: installed versions, supported engines, active configuration.

Adapters report on their engine through the entry-point group ``adaptive_spec.engine_reports``: a
function without arguments that returns an `EngineReport`. This module imports no engine.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Protocol

import msgspec

import adaptive_spec
from adaptive_spec.config import ENVIRONMENT_VARIABLE, config_from_environment, mistaken_names
from adaptive_spec.engines.doctor_rows import EngineReport, RecipeReport, engine_named
from adaptive_spec.errors import AdaptiveSpecError, ConfigError
from adaptive_spec.installed_parts import installed_parts
from adaptive_spec.policy import (
    BASELINES_GROUP,
    ENTRY_POINT_GROUP,
    GRANULARITY,
    configured_policy,
    policy_class,
    provenance_of,
)

ENGINE_REPORTS_GROUP = "adaptive_spec.engine_reports"

SOURCE_CHECKS_GROUP = "adaptive_spec.source_checks"
"""Entry-point group of functions that check an engine's source tree against the adapter's facts."""

RECIPES_GROUP = "adaptive_spec.recipes"
"""Entry-point group of functions from a start command to its `RecipeReport`."""


class SourceReport(Protocol):
    """Result of a source check; a `msgspec.Struct`, so that it can be printed as JSON."""

    routes: dict[str, str]
    """Route of steering the engine -> ``usable``, or its first problem."""
    problems: list[str]
    """Problems to act on."""

    @property
    def rows(self) -> Sequence[tuple[str, ...]]:
        """Table rows: route, fact, file, result."""
        ...


class PolicyReport(msgspec.Struct, frozen=True):
    """An installed policy.

    Attributes:
        name: name in the configuration.
        summary: the policy's own summary, one line.
        location: ``module:Class``.
        distribution: package that installs the policy.
        source: publication of its rule; empty for our own rules.
        granularity: L0 one K per batch, L1 K per request at verification, L2 draft depth as well.
        greedy_drafts_only: with sampled drafts, the policy would change the output distribution.
        problem: reason that the policy cannot be used; empty if it can.
    """

    name: str
    summary: str
    location: str
    distribution: str
    source: str
    granularity: str
    greedy_drafts_only: bool
    problem: str = ""


class Configured(msgspec.Struct, frozen=True):
    """Configuration named by ``ADAPTIVE_SPEC_CONFIG``.

    Attributes:
        source: value of the variable; empty if it is not set.
        mode: configured mode; empty without a valid configuration.
        policy: configured policy, likewise.
        problem: reason that the configuration cannot be used; empty if it can.
    """

    source: str
    mode: str = ""
    policy: str = ""
    problem: str = ""


class Report(msgspec.Struct, frozen=True):
    """Complete report of the doctor, with the problems to act on."""

    version: str
    python: str
    numpy: str
    numba: str | None
    engines: list[EngineReport]
    configured: Configured
    policies: list[PolicyReport]
    problems: list[str]


def examine(environ: Mapping[str, str] = os.environ) -> Report:
    """Examine this environment. Never raises for its findings."""
    engines, problems = _engines()
    configured = _configured(environ)
    policies = installed_policies()
    problems += mistaken_names({}, environ) + _numba_problems()
    if configured.problem:
        problems.append(configured.problem)
    problems += [f"policy {policy.name}: {policy.problem}" for policy in policies if policy.problem]
    return Report(
        version=adaptive_spec.__version__,
        python=platform.python_version(),
        numpy=version("numpy"),
        numba=_version("numba"),
        engines=engines,
        configured=configured,
        policies=policies,
        problems=problems,
    )


def verdict(report: Report, engine: str | None = None) -> tuple[str, bool]:
    """Return the verdict in a line, and whether the exit code is 0.

    Args:
        report: of this environment.
        engine: engine that must be ready; None: no engine needs to be installed.

    Raises ConfigError for an unknown engine.
    """
    if engine is not None:
        engine = engine_named(engine, [each.engine for each in report.engines])
    if report.problems:
        return f"verdict: {len(report.problems)} to mend, see above", False
    installed = [each for each in report.engines if each.installed_version]
    if engine is not None:
        named = [each for each in installed if each.engine == engine]
        if not named:
            return f"verdict: not ready, {engine} is not installed here", False
        installed = named
    if not installed:
        return "verdict: ready for simulation; no engine is installed in this environment", True
    for each in installed:
        if not each.supported:
            return f"verdict: not ready, {each.engine}: {each.detail}", False
        if each.refusal:
            return f"verdict: not ready, {each.engine} {each.refusal}", False
    names = ", ".join(f"{each.engine} {each.installed_version}" for each in installed)
    state = "on by ADAPTIVE_SPEC_CONFIG" if report.configured.mode else "inactive until configured"
    return f"verdict: ready, {names} can load the plugin; {state}", True


def source_report(engine: str, tree: Path) -> SourceReport:
    """Check a source tree against the facts that the engine's adapter relies on.

    Raises DataError if the tree is not of that engine, ConfigError if no check is installed.
    """
    for point in entry_points(group=SOURCE_CHECKS_GROUP, name=engine):
        report: SourceReport = point.load()(tree)
        return report
    raise ConfigError(f"no source check for {engine!r} is installed; reinstall adaptive-spec")


def recipe_report(command: str, engine: str = "vllm", *, trust: bool = False) -> RecipeReport:
    """Return what an engine's adapter will steer on a server started by this command.

    Options that name code are left out unless `trust` is given.

    Raises ConfigError, one line, for a command without a valid configuration.
    """
    for point in entry_points(group=RECIPES_GROUP, name=engine):
        report: RecipeReport = point.load()(command, trust=trust)
        return report
    raise ConfigError(f"nothing judges a recipe of {engine!r}; reinstall adaptive-spec")


def installed_policies() -> list[PolicyReport]:
    """Return the policies and baselines of all installed packages, by name."""
    found, clashes = installed_parts(ENTRY_POINT_GROUP, BASELINES_GROUP)
    reports = [_policy(point) for point in found.values()]
    for point, kept in clashes:
        problem = f"left out, as {kept} has this name; rename it"
        reports.append(_unusable(point, problem))
    return sorted(reports, key=lambda each: each.name)


def _engines() -> tuple[list[EngineReport], list[str]]:
    reports, problems = [], []
    for point in sorted(entry_points(group=ENGINE_REPORTS_GROUP), key=lambda point: point.name):
        try:
            report = msgspec.convert(point.load()(), EngineReport, from_attributes=True)
        except Exception as error:
            # A broken adapter or engine must not hide the rest of the report.
            problem = f"{type(error).__name__}: {_first_line(error)}"
            report = EngineReport(point.name, None, False, problem, "unknown")
            problems.append(f"engine {point.name}: {problem}")
        reports.append(report)
    return reports, problems


def _configured(environ: Mapping[str, str]) -> Configured:
    source = environ.get(ENVIRONMENT_VARIABLE, "")
    try:
        config = config_from_environment(environ)
        if config is None:
            return Configured(source)
        configured_policy(config)
    except AdaptiveSpecError as error:
        return Configured(source, problem=str(error))
    return Configured(source, mode=config.mode, policy=config.policy)


def _unusable(point: EntryPoint, problem: str) -> PolicyReport:
    return PolicyReport(point.name, "", point.value, _distribution(point), "", "", False, problem)


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else ""


def _policy(point: EntryPoint) -> PolicyReport:
    try:
        policy = policy_class(point.name, baselines=True)
    except Exception as error:
        return _unusable(point, _first_line(error))
    origin = provenance_of(policy)
    return PolicyReport(
        point.name,
        policy.summary,
        point.value,
        _distribution(point),
        origin.source,
        GRANULARITY[origin.granularity],
        origin.greedy_drafts_only,
        "",
    )


def _numba_problems() -> list[str]:
    """Import numba: each decision needs it, and it refuses a numpy that it does not know."""
    try:
        import_module("numba")
    except Exception as error:
        return [f"numba compiles decisions and cannot be imported: {_first_line(error)}"]
    return []


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
