"""Engine-side half of the run-time switch: a method of EngineCore that its clients can call.

vLLM runs it in the thread that schedules, between two steps. It is installed when our scheduler is
built, in that process only, and taken away when the scheduler shuts down.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from adaptive_spec.adapters.vllm.metrics import engine_index
from adaptive_spec.controller.controller import Controller
from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.operation.plain import plain
from adaptive_spec.operation.run_time_switch import parse_switch

METHOD = "adaptive_spec_control"
_WEIGHTS = "set_weight_version"
_ORIGINAL = "_adaptive_spec_original"


def install() -> None:
    """Give EngineCore the method, and hear of new weights."""
    from vllm.v1.engine.core import EngineCore

    setattr(EngineCore, METHOD, adaptive_spec_control)
    original = getattr(EngineCore, _WEIGHTS, None)
    if original is None or hasattr(original, _ORIGINAL):
        return

    @functools.wraps(original)
    def set_weight_version(self: Any, weight_version: str) -> Any:
        done = original(self, weight_version)
        driver = getattr(self.scheduler, "adaptive_spec", None)
        if driver is not None:  # another engine of this process may not be ours
            driver.weights_changed(weight_version)
        return done

    setattr(set_weight_version, _ORIGINAL, original)
    setattr(EngineCore, _WEIGHTS, set_weight_version)


def uninstall() -> None:
    """EngineCore as it was."""
    from vllm.v1.engine.core import EngineCore

    if METHOD in vars(EngineCore):
        delattr(EngineCore, METHOD)
    original = getattr(getattr(EngineCore, _WEIGHTS, None), _ORIGINAL, None)
    if original is not None:
        setattr(EngineCore, _WEIGHTS, original)


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
    controller = self.scheduler.adaptive_spec.controller
    try:
        answer = _answer(controller, request, history=history, break_even=break_even)
        answer["engine"] = engine_index(self.vllm_config)
        return msgspec.json.encode(answer).decode()
    except Exception as error:
        controller.fault(f"status raised {type(error).__name__}: {error}")
        return f'{{"fault": "the status cannot be told: {type(error).__name__}"}}'


def _answer(
    controller: Controller, request: Any, *, history: bool, break_even: bool
) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    if request is not None:
        try:
            controller.switch(parse_switch(request, source="request"))
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
