"""Memory footprint of a policy: the number of values reachable from its attributes."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

_NOT_HELD = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


def memory_footprint(root: object) -> int:
    """Count the entries of arrays and containers reachable from an object's attributes.

    Each object counts once. Classes, modules and functions are not followed; a bound method's
    object and a partial's arguments are.
    """
    count = 0
    known: set[int] = set()
    open_: list[Any] = [root]
    while open_:
        item = open_.pop()
        if id(item) in known or isinstance(item, _NOT_HELD):
            continue
        known.add(id(item))
        if isinstance(item, np.ndarray):
            count += item.size
            if item.dtype == object:
                open_.extend(item.ravel().tolist())
            elif item.base is not None:
                open_.append(item.base)
        elif isinstance(item, str | bytes | bytearray):
            count += len(item)
        elif isinstance(item, Mapping):
            count += len(item)
            open_.extend(item.keys())
            open_.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset | deque):
            count += len(item)
            open_.extend(item)
        else:
            open_.extend(_attributes(item))
    return count


def _attributes(item: object) -> list[Any]:
    """Return the values of an object's attributes, slots included."""
    values = list(getattr(item, "__dict__", {}).values())
    for owner in type(item).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(item, name):
                values.append(getattr(item, name))
    # Struct fields of msgspec; contents of bound methods and partials.
    names = (*getattr(type(item), "__struct_fields__", ()), "__self__", "func", "args", "keywords")
    values.extend(getattr(item, name) for name in names if hasattr(item, name))
    return values
