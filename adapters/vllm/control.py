"""Engine-side half of the run-time switch: a method of EngineCore that its clients can call.

vLLM runs it in the thread that schedules, between two steps. It is installed when our scheduler is
built, in that process only, and taken away when the scheduler shuts down.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from adaptive_spec.adapters.vllm.metrics import engine_index
from adaptive_spec.engines.operator_answer import operator_answer

METHOD = "adaptive_spec_control"
_RELOADS = ("reload_weights", "finish_weight_update")
"""Calls of the workers after which other weights run, those of the drafter included."""
_ORIGINAL = "_adaptive_spec_original"


def install() -> None:
    """Give EngineCore the method, and hear of new weights."""
    from vllm.v1.engine.core import EngineCore

    setattr(EngineCore, METHOD, adaptive_spec_control)
    for name, news in _DOORS.items():
        original = getattr(EngineCore, name, None)
        if original is None or hasattr(original, _ORIGINAL):
            continue
        wrapped = functools.wraps(original)(_telling(original, news))
        setattr(wrapped, _ORIGINAL, original)
        setattr(EngineCore, name, wrapped)


def uninstall() -> None:
    """EngineCore as it was."""
    from vllm.v1.engine.core import EngineCore

    if METHOD in vars(EngineCore):
        delattr(EngineCore, METHOD)
    for name in _DOORS:
        original = getattr(getattr(EngineCore, name, None), _ORIGINAL, None)
        if original is not None:
            setattr(EngineCore, name, original)


def _telling(original: Callable[..., Any], news: Callable[[Any], str]) -> Callable[..., Any]:
    """Return a method that tells the scheduler of new weights once they are there."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(self, *args, **kwargs)
        # vLLM's workers are set up by such calls before there is a scheduler; it may not be ours.
        driver = getattr(getattr(self, "scheduler", None), "adaptive_spec", None)
        first = next(iter((*args, *kwargs.values())), None)
        if driver is not None and (what := news(first)):
            driver.weights_changed(what)
        return done

    return method


_DOORS: Mapping[str, Callable[[Any], str]] = {
    "set_weight_version": lambda version: f"weights are now {version!r}",
    "collective_rpc": lambda method: f"workers did {method}" if method in _RELOADS else "",
}
"""Methods of EngineCore by which weights change -> what their first argument says of it."""


def adaptive_spec_control(
    self: Any, request: Any = None, history: bool = False, break_even: bool = False
) -> str:
    """Return the answer to an operator, see `operator_answer`; vLLM carries a text. Never raises.

    Args:
        self: vLLM's EngineCore.
        request: what is to change; None: nothing.
        history: whether figures of the last ten minutes are wanted.
        break_even: whether the accepted drafts that a round needs are wanted, by load.
    """
    driver = self.scheduler.adaptive_spec
    return operator_answer(
        driver.controller,
        lambda: engine_index(self.vllm_config),
        request,
        history=history,
        break_even=break_even,
        publish=driver.publish,
    )
