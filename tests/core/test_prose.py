"""Docstrings open with a verb or a noun, so that a stranger reads them once."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("adapters", "adaptive_spec", "benchmarks", "demo", "policies", "scripts", "sim")
_AVOIDS_THE_NOUN = re.compile(r"(What|That|Those|Whether|Take up)\b")
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def openings() -> Iterator[tuple[str, str]]:
    """Yield the place and the first line of each docstring of a function or class."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text.partition("\n")[0]


def test_a_docstring_names_what_it_is_about_or_what_it_does() -> None:
    found = list(openings())
    assert len(found) > 2000
    assert [each for each in found if _AVOIDS_THE_NOUN.match(each[1])] == []
