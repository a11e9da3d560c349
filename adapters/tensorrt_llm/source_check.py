"""Looks for the contract in a TensorRT-LLM source tree, without importing it.

Works on the syntax tree of the few files the contract names, so it needs no GPU and runs on a
checkout, an unpacked wheel or the installed package alike.
"""

from __future__ import annotations

import re
from pathlib import Path

from adaptive_spec.adapters.tensorrt_llm.contract import FACTS, ROUTES, Fact, Route
from adaptive_spec.engines.source_facts import Finding, SourceReport, forget_files, look_up
from adaptive_spec.errors import DataError, UnsupportedEngineError

_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


def check_tree(path: Path) -> SourceReport:
    """Look for every fact of the contract in a tree.

    Args:
        path: a checkout, or its folder ``tensorrt_llm``.

    Raises DataError, one line, if that is no TensorRT-LLM source.
    """
    package = package_folder(path)
    findings = [_find(fact, package) for fact in FACTS]
    routes: dict[str, str] = {route: _usable(findings, route) for route in ROUTES}
    problems = []
    if all(state != "usable" for state in routes.values()):
        problems = [f"{route}: {state}" for route, state in routes.items()]
    return SourceReport(
        engine="tensorrt-llm",
        version=version_of(package),
        tree=str(package),
        findings=findings,
        routes=routes,
        problems=problems,
    )


def require_known_source(package: Path) -> None:
    """Raise UnsupportedEngineError, one line, if the one-engine route has changed."""
    problems = [
        f"{finding.what} {finding.problem}"
        for finding in (_find(fact, package) for fact in FACTS if fact.route == "one-engine")
        if finding.problem
    ]
    forget_files()
    if problems:
        raise UnsupportedEngineError(
            f"adaptive_spec: TensorRT-LLM {version_of(package)} differs where we hook in "
            f"({'; '.join(problems)}); unset TLLM_ADAPTIVE_SPEC, or see "
            "`adaptive-spec doctor --tensorrt-llm-tree`"
        )


def package_folder(path: Path) -> Path:
    """The folder `tensorrt_llm` in, or at, a path. Raises DataError if there is none."""
    for folder in (path, path / "tensorrt_llm"):
        if (folder / "_torch").is_dir():
            return folder
    raise DataError(f"{path}: no TensorRT-LLM source; give a checkout or its folder tensorrt_llm")


def version_of(package: Path) -> str:
    """Version that a package says it has; empty without one."""
    file = package / "version.py"
    match = _VERSION.search(file.read_text(errors="replace")) if file.is_file() else None
    return match.group(1) if match else ""


def _usable(findings: list[Finding], route: Route) -> str:
    problems = [finding for finding in findings if finding.route == route and finding.problem]
    if not problems:
        return "usable"
    return f"{problems[0].what} {problems[0].problem}" + (
        f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    )


def _find(fact: Fact, package: Path) -> Finding:
    return Finding(fact.route, *look_up(fact, package), fact.why)
