"""Features of an adapter follow from the facts that hold in an engine's source."""

from pathlib import Path

import pytest

from adaptive_spec.adapters.sglang.facts import SOURCE as SGLANG
from adaptive_spec.adapters.tensorrt_llm.contract import SOURCE as TENSORRT_LLM
from adaptive_spec.adapters.vllm.facts import SOURCE as VLLM
from adaptive_spec.engines.source_check import EngineSource, SourceReport, version_of
from adaptive_spec.engines.source_facts import Names
from adaptive_spec.errors import DataError, UnsupportedEngineError
from tests.refused import refused


def fact(name: str) -> Names:
    return Names(files=("core/loop.py",), names=(name,), why="tests")


def source(*bases: str) -> EngineSource:
    return EngineSource(
        title="Engine",
        package="no_such_engine",
        landmark="core",
        facts={"base": (fact("step"), fact("stop")), "extra": (fact("peek"),)},
        bases=bases or ("base",),
        go_on="unset VARIABLE",
    )


def tree_with(folder: Path, *names: str) -> Path:
    core = folder / "no_such_engine" / "core"
    core.mkdir(parents=True)
    (core / "loop.py").write_text("\n".join(f"{name} = 0" for name in names))
    return folder


@pytest.mark.parametrize(
    ("names", "available", "problems"),
    [
        (("step", "stop", "peek"), {"base", "extra"}, 0),
        (("step", "stop"), {"base"}, 0),
        (("step", "peek"), {"extra"}, 1),
        ((), set(), 1),
    ],
)
def test_a_lost_fact_takes_exactly_its_feature(
    tmp_path: Path, names: tuple[str, ...], available: set[str], problems: int
) -> None:
    report = source().check_tree(tree_with(tmp_path, *names))
    assert report.available == available
    assert set(report.missing) == {"base", "extra"} - available
    assert len(report.problems) == problems
    assert len(report.rows) == 3


def test_what_is_needed_and_missing_is_refused_in_one_line(tmp_path: Path) -> None:
    package = tree_with(tmp_path, "step", "peek") / "no_such_engine"
    assert source().require(["extra"], package).available == {"extra"}
    said = ("Engine", "lack stop", "core/loop.py", "install a tested", "unset VARIABLE")
    with refused(UnsupportedEngineError, *said):
        source().require(["base", "extra"], package)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "adaptive-spec-facts"


def test_an_engine_is_checked_once_until_one_of_its_files_changes(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tree_with(tmp_path, "step", "stop") / "no_such_engine"
    checked: list[Path] = []
    check = EngineSource.check_tree

    def counted(self: EngineSource, path: Path) -> SourceReport:
        checked.append(path)
        return check(self, path)

    monkeypatch.setattr(EngineSource, "check_tree", counted)
    first = source().require(["base"], package)
    assert source().require(["base"], package) == first
    assert len(checked) == 1
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:-9])  # damaged
    assert source().require(["base"], package) == first
    (package / "core" / "loop.py").write_text("step = 0")
    with pytest.raises(UnsupportedEngineError, match="lack stop"):
        source().require(["base"], package)
    with pytest.raises(UnsupportedEngineError, match="lack stop"):
        source().require(["base"], package)
    assert len(checked) == 3
    record = package.parent / "no_such_engine-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("another installation")
    with pytest.raises(UnsupportedEngineError, match="lack stop"):
        source().require(["base"], package)
    assert len(checked) == 4


@pytest.mark.parametrize("fault", ["a file", "others write", "no home"])
def test_a_cache_that_cannot_be_used_is_no_fault(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    package = tree_with(tmp_path, "step", "stop") / "no_such_engine"
    cache.parent.mkdir()
    if fault == "a file":
        cache.write_text("in the way")
    elif fault == "others write":
        cache.mkdir()
        cache.chmod(0o777)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "~no_such_user/cache")
    for _ in range(2):
        assert source().require(["base"], package).available == {"base"}
    assert fault != "others write" or not list(cache.iterdir())


def test_one_of_several_bases_is_enough(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, "peek")
    assert source("base", "extra").check_tree(tree).problems == []
    assert len(source().check_tree(tree).problems) == 1


def test_an_engine_whose_source_is_not_there_is_refused() -> None:
    with pytest.raises(UnsupportedEngineError, match="unset VARIABLE"):
        source().require(["base"])


def test_a_folder_without_the_engine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no Engine source"):
        source().check_tree(tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("_version.py", "__version__ = version = '0.32.0+cpu'\n", "0.32.0+cpu"),
        ("version.py", '# generated\n__version__ = "1.2.3"\n', "1.2.3"),
        ("version.py", "__version__: str\n", ""),
    ],
)
def test_a_package_says_its_version(tmp_path: Path, file: str, text: str, version: str) -> None:
    assert version_of(tmp_path) == ""
    (tmp_path / file).write_text(text)
    assert version_of(tmp_path) == version


@pytest.mark.parametrize("engine", [SGLANG, TENSORRT_LLM, VLLM])
def test_each_adapter_says_what_every_fact_is_for(engine: EngineSource) -> None:
    assert set(engine.bases) <= set(engine.facts)
    assert all(fact.why for facts in engine.facts.values() for fact in facts)
