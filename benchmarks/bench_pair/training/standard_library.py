"""Code and prose from the Python standard library of the running interpreter.

Code is whole modules.  Prose is docstrings and the language reference that `pydoc` ships.
Documents are ASCII and sorted by path, so one interpreter version gives one corpus.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SKIPPED_FOLDERS = frozenset(
    {"site-packages", "test", "tests", "idle_test", "__pycache__", "encodings", "ensurepip"}
)
LONGEST_MODULE = 250_000
SHORTEST_DOCUMENT = 200
SHORTEST_DOCSTRING = 120
REFERENCE_MODULE = Path("pydoc_data/topics.py")


@dataclass(frozen=True)
class Document:
    """One text; `name` decides, for ever, whether it is held out."""

    name: str
    text: str


def library_modules(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield (path relative to `root`, source) of every ASCII module that isn't a test."""
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if SKIPPED_FOLDERS.intersection(relative.parts) or relative.parts[0].startswith("config-"):
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        if source.isascii():
            yield relative, source


def reference_topics(source: str) -> dict[str, str]:
    """The literal `topics` dictionary of `pydoc_data/topics.py`."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(statement.value)
            return topics
    raise ValueError(f"no dictionary in {REFERENCE_MODULE}")


def docstrings(source: str) -> str:
    """Every long docstring of a module without an interactive session, joined by blank lines."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (
        ast.get_docstring(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, documented)
    )
    kept = (text for text in found if text and len(text) > SHORTEST_DOCSTRING and ">>>" not in text)
    return "\n\n".join(kept)


def read_standard_library(root: Path | None = None) -> dict[str, list[Document]]:
    """Documents of kind "code" and "prose"."""
    root = root or Path(sysconfig.get_paths()["stdlib"])
    code: list[Document] = []
    prose: list[Document] = []
    for relative, source in library_modules(root):
        name = relative.as_posix()
        if relative == REFERENCE_MODULE:
            continue
        if SHORTEST_DOCUMENT < len(source) < LONGEST_MODULE:
            code.append(Document(name, source))
        try:
            prose.append(Document(name, docstrings(source)))
        except SyntaxError:
            continue
    topics = reference_topics((root / REFERENCE_MODULE).read_text(encoding="utf-8"))
    prose += [Document(f"topic {title}", text) for title, text in sorted(topics.items())]
    prose = [p for p in prose if p.text.isascii() and len(p.text) > SHORTEST_DOCUMENT]
    return {"code": code, "prose": prose}
