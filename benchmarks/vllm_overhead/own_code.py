"""Our code inside a vLLM engine: what it is, how long it takes, and how to take it off."""

from __future__ import annotations

import functools
import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchmarks.vllm_cpu.errors import BenchmarkError

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
WORKER_SIDE = (
    f"{ADAPTER}.draft_signal.model_tap:_in_slices",
    f"{ADAPTER}.draft_signal.model_tap:ModelTap._keep",
    f"{ADAPTER}.draft_signal.worker:CarriesSignals._attach",
)
"""Functions that do all there is to do and don't call one another, nor vLLM."""


class Stopwatch:
    """Time inside our functions, by the clock and by CPU time.

    Attributes:
        seconds: by function, by the clock, since `reset`.
        processor: the same in CPU time.
        calls: by function.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.processor: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)

    def reset(self) -> None:
        self.seconds.clear()
        self.processor.clear()
        self.calls.clear()

    @contextmanager
    def watching(self, names: Iterable[str]) -> Iterator[None]:
        """Time the functions of these names, ``module:function`` or ``module:Class.method``.

        Raises BenchmarkError for one that isn't there.
        """
        put_back: list[tuple[Any, str, Any]] = []
        try:
            for name in names:
                owner, attribute = _find(name)
                function = vars(owner)[attribute]
                put_back.append((owner, attribute, function))
                setattr(owner, attribute, self._timed(name.partition(":")[2], function))
            yield
        finally:
            for owner, attribute, function in put_back:
                setattr(owner, attribute, function)

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began, processor = time.perf_counter(), time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.processor[name] += time.process_time() - processor
                self.seconds[name] += time.perf_counter() - began
                self.calls[name] += 1

        return timed


def _find(name: str) -> tuple[Any, str]:
    module, _, path = name.partition(":")
    *classes, attribute = path.split(".")
    try:
        owner = functools.reduce(getattr, classes, importlib.import_module(module))
        vars(owner)[attribute]
    except (ImportError, AttributeError, KeyError):
        raise BenchmarkError(
            f"{name} is not there any more: say in benchmarks/vllm_overhead/own_code.py which "
            "functions are timed instead"
        ) from None
    return owner, attribute


class Hook(NamedTuple):
    """A function of ours in the place of one of vLLM's."""

    owner: Any
    name: str
    ours: Any
    theirs: Any
    """None: the owner is an object, whose class has vLLM's."""


class Removable:
    """What our plugin has put into an engine's objects and classes, to take off and put back."""

    def __init__(self, objects: Iterable[Any], classes: Iterable[type]) -> None:
        """`objects`: whose class or attributes may be ours. `classes`: likewise."""
        self._classes = [(thing, type(thing), vllm_class(thing)) for thing in objects]
        self._hooks = [
            Hook(thing, name, value, None)
            for thing, _, _ in self._classes
            for name, value in vars(thing).items()
            if is_ours(value)
        ]
        for owner in classes:
            if owner.__module__.startswith("adaptive_spec."):
                continue  # goes with the class of its objects
            for name, value in vars(owner).items():
                if is_ours(value):
                    self._hooks.append(
                        Hook(owner, name, value, getattr(value, "__wrapped__", None))
                    )
        self._off = False

    @property
    def names(self) -> list[str]:
        """What there is."""
        changed = [f"{ours.__name__}" for _, ours, theirs in self._classes if ours is not theirs]
        return changed + [f"{_name_of(hook.owner)}.{hook.name}" for hook in self._hooks]

    def take_off(self) -> None:
        """The engine as it is without us."""
        if self._off:
            return
        self._off = True
        for thing, ours, theirs in self._classes:
            if ours is not theirs:
                thing.__class__ = theirs
        for hook in self._hooks:
            if hook.theirs is None:
                delattr(hook.owner, hook.name)
            else:
                setattr(hook.owner, hook.name, hook.theirs)

    def put_back(self) -> None:
        """Undo `take_off`."""
        if not self._off:
            return
        self._off = False
        for thing, ours, theirs in self._classes:
            if ours is not theirs:
                thing.__class__ = ours
        for hook in self._hooks:
            setattr(hook.owner, hook.name, hook.ours)


def is_ours(value: Any) -> bool:
    """A function or method that was defined in adaptive_spec."""
    function = getattr(value, "__func__", value)
    scope = getattr(function, "__globals__", {})
    return str(scope.get("__name__", "")).startswith("adaptive_spec.")


class _Nothing:
    """In the place of our mixin: Python lets an object change between classes of one layout."""


def vllm_class(thing: Any) -> type:
    """The object's class, or if that is ours, vLLM's with an empty mixin."""
    own = type(thing)
    if not own.__module__.startswith("adaptive_spec."):
        return own
    theirs = next(base for base in own.__mro__ if base.__module__.startswith("vllm."))
    return type(theirs.__name__, (_Nothing, theirs), {"__module__": theirs.__module__})


def _name_of(owner: Any) -> str:
    return owner.__name__ if isinstance(owner, type) else type(owner).__name__
