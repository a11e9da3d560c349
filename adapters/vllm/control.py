"""Engine-side half of the run-time switch: a method of EngineCore that its clients can call.

vLLM runs it in the thread that schedules, between two steps. It is installed when our scheduler is
built, in that process only, and taken away when the scheduler shuts down.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from adaptive_spec.adapters.vllm.metrics import engine_index
from adaptive_spec.adapters.vllm.steps import StepDriver
from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.operation.plain import plain
from adaptive_spec.operation.run_time_switch import parse_switch

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
    """Switch if asked to, and say how things stand. Never raises.

    vLLM's thread that sends outputs ends if it meets a value that its encoder does not know, and no
    request is answered from then on. So the answer is encoded here, where an error can be caught,
    and vLLM carries a text.

    Args:
        self: vLLM's EngineCore.
        request: what is to change (`adaptive_spec.operation.run_time_switch`); None: nothing.
        history: whether figures of the last ten minutes are wanted.
        break_even: whether the accepted drafts that a round needs are wanted, by load.

    Returns:
        JSON: `engine`, `status`, `history` and `break_even` if they were asked for, and `error` if
        the request cannot be obeyed; nothing has changed then. Where the answer itself fails,
        `fault` says why.
    """
    driver = self.scheduler.adaptive_spec
    try:
        answer = _answer(driver, request, history=history, break_even=break_even)
        answer["engine"] = engine_index(self.vllm_config)
        return msgspec.json.encode(answer).decode()
    except Exception as error:
        driver.controller.fault(f"status raised {type(error).__name__}: {error}")
        return f'{{"fault": "the status cannot be told: {type(error).__name__}"}}'


def _answer(driver: StepDriver, request: Any, *, history: bool, break_even: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    controller = driver.controller
    if request is not None:
        try:
            controller.switch(parse_switch(request, source="request"))
            driver.publish()
        except AdaptiveSpecError as found:
            answer["error"] = plain(str(found))
        except Exception as found:  # whatever an operator sends, the engine goes on
            answer["error"] = plain(f"{type(found).__name__}: {found}")
    answer["status"] = controller.recent_status()
    if history:
        answer["history"] = controller.history()
    if break_even:
        answer["break_even"] = controller.break_even()
    return answer
