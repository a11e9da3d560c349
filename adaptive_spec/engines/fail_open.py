"""Fail-open hooks: an exception of ours is counted and logged once; the engine continues."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
R = TypeVar("R")


class TakesFaults(Protocol):
    """The part of a controller that counts faults and logs each kind once."""

    def fault(self, what: str) -> None:
        """Report a fault of an adapter's own hooks."""
        ...


class Guarded:
    """Base of objects whose methods an engine calls; `fail_open` guards each of them.

    controller: counts the faults; None where this process has none, and `log` reports them.
    """

    def __init__(
        self,
        controller: TakesFaults | None,
        log: logging.Logger,
    ) -> None:
        self._takes_faults = controller
        self._fault_log = log
        self._said: set[str] = set()

    def report_to(self, controller: TakesFaults) -> None:
        """Set the controller that receives the faults."""
        self._takes_faults = controller

    def fault(self, hook: str, error: Exception) -> None:
        """Count an exception of ours; never raises."""
        try:
            what = f"hook {hook} raised {type(error).__name__}: {error}"
            if self._takes_faults is not None:
                self._takes_faults.fault(what)
            elif hook not in self._said:
                self._said.add(hook)
                self._fault_log.error("adaptive_spec: %s; the engine's own K is used", what)
        except Exception:  # no report may reach the engine either
            return


_Guarded = TypeVar("_Guarded", bound=Guarded)


def fail_open(
    method: Callable[[_Guarded, *Ts], R],
) -> Callable[[_Guarded, *Ts], R | None]:
    """Wrap a method: an exception is reported under the method's name, and None returned.

    Arguments are positional: a call with keywords takes longer, in every step.
    """
    name = method.__name__.lstrip("_")

    @functools.wraps(method)
    def guarded(self: _Guarded, /, *args: *Ts) -> R | None:
        try:
            return method(self, *args)
        except Exception as error:
            self.fault(name, error)
            return None

    return guarded
