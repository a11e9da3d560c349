"""Is vLLM still what we were written for?

`facts` are looked up in a source tree without importing it: in the installed vLLM before anything
is patched, so that a changed one is one clear refusal and not a fault in its step loop; and in the
wheels of versions that cannot be executed here.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from adaptive_spec.adapters.vllm.facts import BASE, FACTS
from adaptive_spec.engines.source_facts import Finding, SourceReport, forget_files, look_up
from adaptive_spec.errors import DataError, UnsupportedEngineError

_VERSION = re.compile(r"__version__ = .*?['\"]([^'\"]+)['\"]")


def check_tree(path: Path) -> SourceReport:
    """Look for every fact in a tree.

    Args:
        path: a checkout or an unpacked wheel, or its folder ``vllm``.

    Raises DataError, one line, if that is no vLLM source.
    """
    package = package_folder(path)
    findings = []
    for feature, facts in FACTS.items():
        for fact in facts:
            findings.append(Finding(feature, *look_up(fact, package), fact.why))
    routes = {feature: _first_problem(findings, feature) or "usable" for feature in FACTS}
    return SourceReport(
        engine="vllm",
        version=version_of(package),
        tree=str(package),
        findings=findings,
        routes=routes,
        problems=[f"{BASE}: {routes[BASE]}"] if routes[BASE] != "usable" else [],
    )


@functools.lru_cache(maxsize=4)
def mismatches(package: Path) -> tuple[str, ...]:
    """What differs in a package folder from what we were written against; empty if nothing does."""
    found = [look_up(fact, package) for facts in FACTS.values() for fact in facts]
    forget_files()
    return tuple(f"{fact.what} {fact.problem} [{fact.file}]" for fact in found if fact.problem)


def require_known_signatures() -> None:
    """Raise UnsupportedEngineError, one line, if the installed vLLM differs."""
    package = installed_folder()
    found = mismatches(package) if package is not None else ("its source is not there",)
    if found:
        raise UnsupportedEngineError(
            f"adaptive_spec: this vLLM has changed where we hook in ({'; '.join(found[:3])}); "
            "install a tested version or remove the `adaptive_spec` configuration"
        )


def installed_folder() -> Path | None:
    """The folder of the installed vLLM, without importing it."""
    spec = importlib.util.find_spec("vllm")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return Path(folders[0]) if folders else None


def package_folder(path: Path) -> Path:
    """The folder `vllm` in, or at, a path. Raises DataError if there is none."""
    for folder in (path, path / "vllm"):
        if (folder / "v1" / "core").is_dir():
            return folder
    raise DataError(f"{path}: no vLLM source; give a checkout, an unpacked wheel or its folder")


def version_of(package: Path) -> str:
    """Version that a package says it has; empty without one (a checkout)."""
    file = package / "_version.py"
    match = _VERSION.search(file.read_text(errors="replace")) if file.is_file() else None
    return match.group(1) if match else ""


def _first_problem(findings: list[Finding], feature: str) -> str:
    problems = [finding for finding in findings if finding.route == feature and finding.problem]
    if not problems:
        return ""
    return f"{problems[0].what} {problems[0].problem}" + (
        f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    )
