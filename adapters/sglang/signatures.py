"""Is SGLang still what we were written for?

`facts` are looked up in the installed source, without importing it, before anything is hooked; so a
changed SGLang is one clear refusal, or one feature less, and no fault in its step loop. The same
check runs on any unpacked wheel: ``mismatches(folder)``.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import msgspec

from adaptive_spec.adapters.sglang.facts import BASE, FACTS, Fact
from adaptive_spec.errors import UnsupportedEngineError


class Mismatch(msgspec.Struct, frozen=True):
    """A fact that does not hold."""

    feature: str
    """What does not work without it."""
    text: str
    """One line: file and symbol."""


def mismatches(srt: Path) -> list[Mismatch]:
    """The facts that do not hold in a source tree; empty if all do.

    Args:
        srt: the folder ``sglang/srt``.
    """
    return [
        Mismatch(fact.feature, f"{fact.describe()} [{fact.file}]")
        for fact in FACTS
        if not _holds(srt, fact)
    ]


def installed_folder() -> Path | None:
    """The folder ``sglang/srt`` of the installed SGLang, without importing it."""
    try:
        spec = importlib.util.find_spec("sglang")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        return Path(folder) / "srt"
    return None


def available_features(srt: Path) -> frozenset[str]:
    """What works with this source. Raises UnsupportedEngineError, one line, if nothing does."""
    found = mismatches(srt)
    missing = [each.text for each in found if each.feature == BASE]
    if missing:
        raise UnsupportedEngineError(
            f"SGLang has changed where we hook in ({'; '.join(missing[:3])}); install a known "
            "version (see docs/sglang.md) or unset ADAPTIVE_SPEC_CONFIG"
        )
    lost = {each.feature for each in found}
    return frozenset({fact.feature for fact in FACTS} - lost)


def _holds(srt: Path, fact: Fact) -> bool:
    for file, symbol in zip(
        fact.file.split("|"), fact.symbol.split("|"), strict="|" in fact.symbol
    ):
        node = _find(_parse(srt / file), symbol)
        if node is not None and _node_fits(node, fact):
            return True
    return False


def _node_fits(node: ast.AST, fact: Fact) -> bool:
    if fact.attributes:
        return set(fact.attributes) <= set(_names(node))
    if fact.order:
        calls = iter(_calls(node))
        return all(any(call == wanted for call in calls) for wanted in fact.order)
    if not isinstance(node, ast.FunctionDef):
        return False
    arguments = node.args
    given = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return set(fact.parameters) <= given


def _find(tree: ast.AST | None, symbol: str) -> ast.AST | None:
    """The class or function of this dotted name."""
    node: ast.AST | None = tree
    for part in symbol.split("."):
        if node is None:
            return None
        node = next(
            (
                child
                for child in ast.iter_child_nodes(node)
                if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == part
            ),
            None,
        )
    return node


def _names(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute):
            yield child.attr
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id


def _calls(node: ast.AST) -> list[str]:
    """Names that are called, in the order of the source."""
    found = [
        (child.lineno, child.col_offset, name)
        for child in ast.walk(node)
        if isinstance(child, ast.Call)
        and (name := getattr(child.func, "attr", getattr(child.func, "id", "")))
    ]
    return [name for *_, name in sorted(found)]


@functools.lru_cache(maxsize=32)
def _parse(file: Path) -> ast.AST | None:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
