"""Facts about an engine's source, looked up in the syntax trees of the files that they name.

A fact is a function with its parameters, a set of names, an order of calls, or a choice between
such facts where versions differ. The engine is never imported: the tree may be a checkout, an
unpacked wheel or the installed package.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from adaptive_spec.errors import DataError

_Def = ast.FunctionDef | ast.AsyncFunctionDef


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function or method, and its first parameters.

    Attributes:
        files: candidate files, relative to the package; one must have the function.
        name: ``function``, ``Class.method``, or ``*.method`` for a method of any class.
        parameters: names of the leading parameters.
        more: further parameters that the function may require; None allows any.
        why: use that the adapter makes of the function.
    """

    files: tuple[str, ...]
    name: str
    parameters: tuple[str, ...]
    more: tuple[str, ...] | None = ()
    why: str


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """Names that a file's code must define or use.

    Attributes:
        files: candidate files; one must have all names.
        names: the names.
        within: ``Class`` or ``Class.method`` that must have the names; empty for the whole file.
        why: use that the adapter makes of the names.
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    within: str = ""
    why: str


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a function, in source order.

    Attributes:
        file: the file.
        function: ``Class.method``.
        calls: last part of the called names; other calls may stand between them.
        why: use that the adapter makes of the order.
    """

    file: str
    function: str
    calls: tuple[str, ...]
    why: str


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """Names that a file's code must not have; a missing file has none.

    Attributes:
        file: the file.
        names: the names.
        within: ``Class`` or ``Class.method`` that must not have them; empty for the whole file.
        why: what the names would stand for.
    """

    file: str
    names: tuple[str, ...]
    within: str = ""
    why: str


class AnyOf(msgspec.Struct, frozen=True, kw_only=True):
    """Alternatives of a fact, for code that versions write differently.

    Attributes:
        facts: the alternatives, the newest version's first; one must hold.
        why: use that the adapter makes of any of them.
    """

    facts: tuple[Function | Names | Order, ...]
    why: str


Fact: TypeAlias = Function | Names | Order | Absent | AnyOf


def function(files: str, signature: str, why: str) -> Function:
    """Return the fact of a signature, written as in the source.

    Args:
        files: candidate files, separated by blanks.
        signature: ``Class.method(self, parameter)``. The function may also require the parameters
            in brackets, as in ``f(a[, b, c])``, and anything after ``...``.
        why: use that the adapter makes of the function.
    """
    name, _, listed = signature.removesuffix(")").partition("(")
    listed, _, optional = listed.removesuffix("]").partition("[, ")
    parameters = tuple(listed.split(", ")) if listed else ()
    more: tuple[str, ...] | None = tuple(optional.split(", ")) if optional else ()
    if parameters[-1:] == ("...",):
        parameters, more = parameters[:-1], None
    return Function(
        files=tuple(files.split()), name=name, parameters=parameters, more=more, why=why
    )


def names(files: str, within: str, listed: str, why: str) -> Names:
    """Return the fact of names, separated by blanks, in a class or method; "": in the file.

    Of candidate files, separated by blanks, one must have all names.
    """
    return Names(files=tuple(files.split()), within=within, names=tuple(listed.split()), why=why)


def order(file: str, function: str, calls: str, why: str) -> Order:
    """Return the fact of calls, separated by blanks, in a ``Class.method``."""
    return Order(file=file, function=function, calls=tuple(calls.split()), why=why)


def absent(file: str, within: str, listed: str, why: str) -> Absent:
    """Return the fact that names, separated by blanks, are not there; arguments as of `names`."""
    return Absent(file=file, within=within, names=tuple(listed.split()), why=why)


class Found(NamedTuple):
    """Result of looking up a fact: first fields of a `source_check.Finding`."""

    what: str
    file: str
    problem: str


def look_up(fact: Fact, package: Path) -> Found:
    """Look up a fact in a package folder; of alternatives, the first that holds, or the first.

    Raises DataError if a file is not Python.
    """
    if isinstance(fact, AnyOf):
        tried = [look_up(one, package) for one in fact.facts]
        return next((found for found in tried if not found.problem), tried[0])
    if isinstance(fact, Function):
        what = f"{fact.name}({', '.join(fact.parameters)})"
        return Found(what, *_function_problem(fact, package))
    if isinstance(fact, Absent):
        place = fact.within or Path(fact.file).name
        there = sorted(set(fact.names) & _names_in(package / fact.file, fact.within))
        problem = f"has {', '.join(there)}" if there else ""
        return Found(f"no {', '.join(fact.names)} in {place}", fact.file, problem)
    if isinstance(fact, Names):
        place = fact.within or Path(fact.files[0]).name
        what = f"{len(fact.names)} names in {place}"
        return Found(what, *_names_problem(fact, package))
    return Found(f"order of calls in {fact.function}", fact.file, _order_problem(fact, package))


def files_of(fact: Fact) -> set[str]:
    """Return the files that a fact is looked up in."""
    if isinstance(fact, AnyOf):
        return set().union(*map(files_of, fact.facts))
    return {fact.file} if isinstance(fact, Order | Absent) else set(fact.files)


def forget_files() -> None:
    """Drop the parsed files: a running server does not need them."""
    _parse.cache_clear()


def _function_problem(fact: Function, package: Path) -> tuple[str, str]:
    for file in fact.files:
        for function in _functions(package / file, fact.name):
            return file, _signature_problem(fact, function)
    return " or ".join(fact.files), "is missing"


def _signature_problem(fact: Function, function: _Def) -> str:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    names = tuple(argument.arg for argument in positional)
    count = len(fact.parameters)
    if names[:count] != fact.parameters:
        return f"has the parameters ({', '.join(names)})"
    if fact.more is None:
        return ""
    defaults = len(arguments.defaults)
    required = set(names[: len(names) - defaults])
    required |= {
        argument.arg
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    }
    strangers = sorted(required - set(fact.parameters) - set(fact.more))
    return f"also needs {', '.join(strangers)}" if strangers else ""


def _names_problem(fact: Names, package: Path) -> tuple[str, str]:
    missing: set[str] = set(fact.names)
    for file in fact.files:
        left = set(fact.names) - _names_in(package / file, fact.within)
        if not left:
            return file, ""
        missing = min(missing, left, key=len)
    return " or ".join(fact.files), f"lack {', '.join(sorted(missing))}"


def _order_problem(fact: Order, package: Path) -> str:
    function = next(_functions(package / fact.file, fact.function), None)
    if function is None:
        return "cannot be checked: the function is missing"
    calls = sorted(
        (node.lineno, node.col_offset, name)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and (name := _last_part(node.func))
    )
    at = 0
    for _, _, name in calls:
        if at < len(fact.calls) and name == fact.calls[at]:
            at += 1
    if at == len(fact.calls):
        return ""
    before = f"after {fact.calls[at - 1]}" if at else "at all"
    return f"differs: {fact.calls[at]} is not called {before}"


def _functions(file: Path, name: str) -> Iterator[_Def]:
    return (found for found in _definitions(file, name) if isinstance(found, _Def))


def _definitions(file: Path, name: str) -> list[Any]:
    """Return classes and functions of a qualified name; ``*`` stands for any class."""
    places: list[Any] = [_parsed(file)]
    for part in name.split("."):
        places = [
            node
            for place in places
            for node in place.body
            if (isinstance(node, _Def | ast.ClassDef) and node.name == part)
            or (isinstance(node, ast.ClassDef) and part == "*")
        ]
    return places


def _names_in(file: Path, within: str) -> set[str]:
    """Return the names that code defines, uses or imports, arguments included."""
    places: list[Any] = _definitions(file, within) if within else [_parsed(file)]
    found: set[str] = set()
    for node in (node for place in places for node in ast.walk(place)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.rpartition(".")[2])
        elif isinstance(node, ast.keyword | ast.arg) and node.arg:
            found.add(node.arg)
        elif isinstance(node, _Def | ast.ClassDef):
            found.add(node.name)
    return found


def _last_part(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def _parse(file: Path, modified: float) -> ast.Module:
    return ast.parse(file.read_bytes(), str(file))


def _parsed(file: Path) -> ast.Module:
    """Return a file's syntax tree, empty without the file. Raises DataError if it is not Python."""
    if not file.is_file():
        return ast.Module(body=[], type_ignores=[])
    try:
        return _parse(file, file.stat().st_mtime)
    except SyntaxError as error:
        raise DataError(f"{file}:{error.lineno}: not Python that this interpreter reads") from error
