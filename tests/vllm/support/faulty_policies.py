"""A policy that breaks in the way a test tells it to, while a server runs."""

from __future__ import annotations

import time
import weakref
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from switchable_policies import RandomPolicy

from adaptive_spec.adapters.vllm import steps
from adaptive_spec.step import SpecPlan, StepContext

_ALIVE: weakref.WeakSet[FaultyPolicy] = weakref.WeakSet()


class FaultyOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes wrong."""

    fault: Literal["none", "raises", "sleeps", "burns", "leaks", "clock"] = "none"
    hours: float = 0.0
    """Jump of the adapter's clock."""


class FaultyPolicy(RandomPolicy):
    """Random K, and a fault."""

    name: ClassVar[str] = "faulty"
    Options: ClassVar[type[msgspec.Struct]] = FaultyOptions

    def __init__(self, options: FaultyOptions, *, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self._fault = options.fault
        self._leaked: list[Any] = []
        _ALIVE.add(self)
        jump = 3600 * options.hours
        steps.time = SimpleNamespace(monotonic=lambda: time.monotonic() + jump)

    def plan(self, context: StepContext) -> SpecPlan:
        if self._fault == "raises":
            raise RuntimeError("planned failure")
        if self._fault == "sleeps":
            time.sleep(1.1)
        if self._fault == "burns":
            until = time.thread_time() + 0.2
            while time.thread_time() < until:
                pass
        if self._fault == "leaks":
            self._leaked.append(np.ones(1 << 17))
        reason = "leaking" if self._fault == "leaks" else f"random, alive {len(_ALIVE)}"
        return msgspec.structs.replace(super().plan(context), reason=reason)
