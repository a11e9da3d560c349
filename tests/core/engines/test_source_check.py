"""Features of an adapter follow from the facts that hold in an engine's source."""

from pathlib import Path

import pytest

from adaptive_spec.adapters.sglang.facts import SOURCE as SGLANG
from adaptive_spec.adapters.tensorrt_llm.contract import SOURCE as TENSORRT_LLM
from adaptive_spec.adapters.vllm.facts import SOURCE as VLLM
from adaptive_spec.engines.source_check import EngineSource, SourceReport, version_of
from adaptive_spec.engines.source_facts import (
    AnyOf,
    Fact,
    Names,
    absent,
    function,
    look_up,
    names,
    order,
)
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


def problem_of(folder: Path, text: str, fact: Fact, file: str = "scheduler.py") -> str:
    (folder / file).write_text(text)
    return look_up(fact, folder).problem


RUN = function("scheduler.py", "S.run(self, batch)", "tests")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("class S:\n    def run(self, batch, *, extra=None): ...", ""),
        ("class S:\n    async def run(self, batch): ...", ""),
        ("class S:\n    def run(self, batches): ...", "has the parameters (self, batches)"),
        ("class S:\n    def run(self, batch, extra): ...", "also needs extra"),
        ("class S:\n    def run(self, batch, *, extra): ...", "also needs extra"),
        ("class T:\n    def run(self, batch): ...", "is missing"),
        ("class S:\n    run = None", "is missing"),
        ("def run(self, batch): ...", "is missing"),
    ],
)
def test_a_changed_function_is_noticed(tmp_path: Path, text: str, problem: str) -> None:
    assert problem_of(tmp_path, text, RUN) == problem


def test_parameters_that_may_follow(tmp_path: Path) -> None:
    text = "class S:\n    def run(self, batch, extra, *, another): ..."
    for signature, problem in (
        ("S.run(self, batch[, extra, another])", ""),
        ("S.run(self, batch[, extra])", "also needs another"),
        ("S.run(self, batch, ...)", ""),
        ("S.run(...)", ""),
    ):
        fact = function("scheduler.py", signature, "tests")
        assert problem_of(tmp_path, text, fact) == problem


def test_a_method_of_any_class_in_any_of_the_files(tmp_path: Path) -> None:
    fact = function("gone.py scheduler.py", "*.run(self, batch)", "tests")
    assert problem_of(tmp_path, "class Any:\n    def run(self, batch): ...", fact) == ""
    assert look_up(fact, tmp_path).file == "scheduler.py"
    assert problem_of(tmp_path, "def run(self, batch): ...", fact) == "is missing"


TEXT = """
import heads as tails
class S:
    one: int
    def run(self, batch, *, option=None):
        self.two = batch.three(four=1)
class T:
    five = 1
"""


@pytest.mark.parametrize(
    ("within", "missing"),
    [
        ("", "heads"),
        ("S", "five, heads, tails"),
        ("S.run", "five, heads, one, tails"),
        ("T", "batch, four, heads, one, option, tails, three, two"),
        ("S.walk", "batch, five, four, heads, one, option, tails, three, two"),
    ],
)
def test_names_are_looked_for_where_they_belong(tmp_path: Path, within: str, missing: str) -> None:
    listed = "batch five four heads one option tails three two"
    fact = names("scheduler.py", within, listed, "tests")
    assert problem_of(tmp_path, TEXT, fact) == f"lack {missing}"


def test_a_changed_order_of_calls_is_noticed(tmp_path: Path) -> None:
    fact = order("scheduler.py", "run", "first second", "tests")
    assert problem_of(tmp_path, "def run():\n  x.first()\n  other()\n  second()", fact) == ""
    text = "def run():\n  second()\n  first()"
    assert problem_of(tmp_path, text, fact) == "differs: second is not called after first"
    assert "function is missing" in problem_of(tmp_path, "def walk(): ...", fact)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ""),
        ("# Manager\nx = 'Manager'", ""),
        ("from elsewhere import Manager", "has Manager"),
        ("class Manager: pass", "has Manager"),
        ("def f(self): self.Manager = 1", "has Manager"),
    ],
)
def test_names_that_must_not_be_there_are_noticed(tmp_path: Path, text: str, problem: str) -> None:
    fact = absent("scheduler.py", "", "Manager", "another controller")
    assert problem_of(tmp_path, text, fact) == problem
    assert not look_up(absent("none.py", "", "Manager", "no such file"), tmp_path).problem


def test_one_of_several_alternatives_is_enough(tmp_path: Path) -> None:
    written = [function("scheduler.py", f"{name}(self, batch)", "tests") for name in ("new", "old")]
    fact = AnyOf(facts=tuple(written), why="tests")
    assert problem_of(tmp_path, "def old(self, batch): ...", fact) == ""
    assert look_up(fact, tmp_path).what == "old(self, batch)"
    assert problem_of(tmp_path, "def neither(self, batch): ...", fact) == "is missing"
    assert look_up(fact, tmp_path).what == "new(self, batch)"


def test_a_file_that_is_not_python_is_an_error_in_one_line(tmp_path: Path) -> None:
    with refused(DataError, match=r"scheduler\.py:1: not Python"):
        problem_of(tmp_path, "class S(", RUN)
