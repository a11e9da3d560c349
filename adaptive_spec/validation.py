"""Errors of msgspec in one line that says what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

_PATH = re.compile(r"`\$([^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")


def explained(error: msgspec.ValidationError, struct: type[msgspec.Struct]) -> str:
    """Return msgspec's message, the values of an enumeration and the keys of the object.

    Args:
        error: raised while an object was converted to `struct`.
        struct: type of the whole object.
    """
    text = str(error)
    found = _PATH.search(text)
    nodes = list(_alternatives(inspect.type_info(struct)))
    fields = _fields(nodes)
    for step in _STEP.finditer(found[1] if found else ""):
        nodes = list(_inside(nodes, step[1]))
        fields = _fields(nodes) or fields
    if text.startswith("Invalid enum value"):
        values = [str(v) for n in nodes if isinstance(n, inspect.LiteralType) for v in n.values]
        text = f"{text}; choose one of {', '.join(values)}"
    elif unknown := _UNKNOWN.match(text):
        text += nearest(unknown[1], fields)
    return f"{text}; keys are {', '.join(fields) or 'none'}"


def _fields(nodes: list[Any]) -> list[str]:
    structs = [node for node in nodes if isinstance(node, inspect.StructType)]
    return [field.encode_name for struct in structs for field in struct.fields]


def _alternatives(node: Any) -> Iterator[Any]:
    for each in node.types if isinstance(node, inspect.UnionType) else (node,):
        yield each.type if isinstance(each, inspect.Metadata) else each


def _inside(nodes: list[Any], name: str | None) -> Iterator[Any]:
    """Return the possible types of a field, or of an item where there is no name."""
    for node in nodes:
        if name is not None and isinstance(node, inspect.StructType):
            for field in node.fields:
                if field.encode_name == name:
                    yield from _alternatives(field.type)
        for part in ("item_type", "value_type"):
            if name is None and hasattr(node, part):
                yield from _alternatives(getattr(node, part))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` for the known name most like a mistyped or cut one; else ""."""
    names = list(known)
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    found = found or sorted((n for n in names if name and n.startswith(name)), key=len)
    return f" (did you mean {found[0]}?)" if found else ""
