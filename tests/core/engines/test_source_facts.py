"""A fact about an engine's source holds or is named; each kind of change is noticed."""

from pathlib import Path

import pytest

from adaptive_spec.engines.source_facts import AnyOf, Fact, absent, function, look_up, names, order
from adaptive_spec.errors import DataError
from tests.refused import refused


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
