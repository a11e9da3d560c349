"""A scheduler class that the user, or a framework such as NVIDIA Dynamo, has named.

Ours is built on it: our methods call its methods, which call vLLM's. A method of it that does not
call the one that it overrides decides on its own, and two would set K.
"""

from __future__ import annotations

import contextlib
import importlib
from types import FunctionType
from typing import Any

from adaptive_spec.errors import ConfigError

PREFIX = "AdaptiveOver"
"""Name of our class on another one, whose dotted path follows with `_SEPARATOR` for each dot."""
_SEPARATOR = "/"


def over(given: Any, *, asynchronous: bool) -> str:
    """Return the name of our class on the given one, as `schedulers` resolves it.

    Args:
        given: value of `SchedulerConfig.scheduler_cls`: a class, or its dotted path.
        asynchronous: whether vLLM schedules asynchronously.

    Raises ConfigError, one line, for a class that ours cannot be built on.
    """
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    path = given if isinstance(given, str) else f"{given.__module__}.{given.__qualname__}"
    needed = AsyncScheduler if asynchronous else Scheduler
    try:
        base = _resolve(path)
        fits = issubclass(base, needed)
    except Exception as error:
        raise ConfigError(
            f"--scheduler-cls {path}: cannot be imported by its name ({error}); adaptive_spec "
            "builds its own scheduler on it: give another, or remove `adaptive_spec`"
        ) from error
    if not fits:
        raise ConfigError(
            f"--scheduler-cls {path}: no subclass of vLLM's {needed.__name__}, which adaptive_spec "
            "needs here; remove --scheduler-cls or the `adaptive_spec` configuration"
        )
    return PREFIX + _SEPARATOR + path.replace(".", _SEPARATOR)


def base_of(given: Any) -> type | None:
    """Return the class of the user's behind a value of `scheduler_cls`, whether ours is on it yet.

    None without one, and for one that cannot be imported.
    """
    if isinstance(given, type):
        return given
    path = str(given or "")
    name = path.rpartition(".")[2]
    if name.startswith(PREFIX + _SEPARATOR):
        path = name[len(PREFIX) + 1 :].replace(_SEPARATOR, ".")
    elif not path or path.startswith("adaptive_spec."):
        return None
    with contextlib.suppress(Exception):
        return _resolve(path)
    return None


def replaced(base: type, names: tuple[str, ...]) -> list[str]:
    """Return the methods among `names` that a class replaces: it overrides them and calls no base.

    A helper of the class may make the call.
    """
    found = []
    for each in base.__mro__:
        if each.__module__.partition(".")[0] == "vllm":
            break
        codes = [part.__code__ for part in vars(each).values() if isinstance(part, FunctionType)]
        for name in names:
            calls = any("super" in code.co_names and name in code.co_names for code in codes)
            if name in vars(each) and not calls:
                found.append(f"{each.__name__}.{name}")
    return found


def _resolve(path: str) -> type:
    module, _, name = path.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found
