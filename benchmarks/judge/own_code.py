"""Our code inside a vLLM engine: what it is, and how long it takes."""

from __future__ import annotations

import functools
import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

ADAPTER = "adaptive_spec.adapters.vllm"
SCHEDULER_SIDE = tuple(
    f"{ADAPTER}.steps:StepDriver.{name}"
    for name in (
        "before_schedule",
        "scheduled",
        "after_schedule",
        "drafted",
        "read",
        "processed",
        "think",
        "freed",
    )
)
"""Functions that do all there is to do and don't call one another, nor vLLM."""
OURS = (
    *SCHEDULER_SIDE,
    f"{ADAPTER}.draft_signal.worker:CarriesSignals._attach",
    f"{ADAPTER}.draft_signal.v2_tap:V2Tap._keep",
)
"""These, and what else of adaptive-spec runs on the host in a step."""
EVERY_STEP = "StepDriver.before_schedule"
"""One of them, which is called once in every step."""


class Stopwatch:
    """Time inside our functions.

    Args:
        processor: by CPU time, too, and calls are counted: it takes a microsecond a call.

    Attributes:
        seconds: by function, by the clock.
        processor: the same in CPU time.
        calls: by function.
    """

    def __init__(self, *, processor: bool = True) -> None:
        self._processor = processor
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.processor: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)

    @contextmanager
    def watching(self, names: Iterable[str]) -> Iterator[Stopwatch]:
        """Time the functions of these names, ``module:function`` or ``module:Class.method``.

        Raises LookupError for one that isn't there.
        """
        put_back: list[tuple[Any, str, Any]] = []
        try:
            for name in names:
                owner, attribute = _find(name)
                function = vars(owner)[attribute]
                put_back.append((owner, attribute, function))
                setattr(owner, attribute, self._timed(name.partition(":")[2], function))
            yield self
        finally:
            for owner, attribute, function in put_back:
                setattr(owner, attribute, function)

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        seconds, now = self.seconds, time.perf_counter

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = now()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[name] += now() - began

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            processor = time.process_time()
            try:
                return timed(*args, **kwargs)
            finally:
                self.processor[name] += time.process_time() - processor
                self.calls[name] += 1

        return counted if self._processor else timed


def _find(name: str) -> tuple[Any, str]:
    module, _, path = name.partition(":")
    *classes, attribute = path.split(".")
    try:
        owner = functools.reduce(getattr, classes, importlib.import_module(module))
        vars(owner)[attribute]
    except (ImportError, AttributeError, KeyError):
        raise LookupError(
            f"{name} is not there any more: say in benchmarks/judge/own_code.py which "
            "functions are timed instead"
        ) from None
    return owner, attribute
