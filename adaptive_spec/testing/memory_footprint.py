"""Memory footprint of a policy: the number of values reachable from it."""

from __future__ import annotations

import gc
import logging
import types
from collections.abc import Sized
from typing import Any

import numpy as np

_NOT_HELD = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, logging.Logger)


def memory_footprint(root: object) -> int:
    """Count the entries of arrays and containers reachable from an object.

    Each object counts once. Classes, modules and functions are not followed; a bound method's
    object and a partial's arguments are. Nor are loggers, whose handlers may keep what was said.
    """
    count = 0
    known: set[int] = set()
    open_: list[Any] = [root]
    while open_:
        item = open_.pop()
        if id(item) in known or isinstance(item, _NOT_HELD):
            continue
        known.add(id(item))
        if isinstance(item, np.ndarray):  # the garbage collector does not look into arrays
            count += item.size
            open_.append(item.base)
            open_.extend(item.ravel().tolist() if item.dtype == object else ())
        else:
            count += len(item) if isinstance(item, Sized) else 0
            open_.extend(gc.get_referents(item))
    return count
