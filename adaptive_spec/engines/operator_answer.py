"""An engine's answer to an operator who asks over HTTP; it is made in the thread that schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from adaptive_spec.controller.controller import Controller
from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.operation.plain import plain
from adaptive_spec.operation.run_time_switch import parse_switch


def operator_answer(
    controller: Controller,
    engine: Callable[[], int],
    request: Any,
    *,
    history: bool,
    break_even: bool,
    publish: Callable[[], None],
) -> str:
    """Switch if asked to, and say how things stand. Never raises.

    The answer is encoded here, where an error can be caught: what an engine sends its outputs with
    may end at a value that its encoder does not know.

    Args:
        controller: of the engine.
        engine: returns the engine's number.
        request: what is to change (`adaptive_spec.operation.run_time_switch`); None: nothing.
        history: whether figures of the last ten minutes are wanted.
        break_even: whether the accepted drafts that a round needs are wanted, by load.
        publish: shows what has changed; an idle engine takes no step that would.

    Returns:
        JSON: `engine`, `status`, `history` and `break_even` if they were asked for, and `error` if
        the request cannot be obeyed; nothing has changed then. Where the answer itself fails,
        `fault` says why.
    """
    try:
        answer: dict[str, Any] = {"engine": engine()}
        if request is not None:
            try:
                controller.switch(parse_switch(request, source="request"))
                publish()
            except AdaptiveSpecError as found:
                answer["error"] = plain(str(found))
            except Exception as found:  # whatever an operator sends, the engine goes on
                answer["error"] = plain(f"{type(found).__name__}: {found}")
        answer["status"] = controller.recent_status()
        if history:
            answer["history"] = controller.history()
        if break_even:
            answer["break_even"] = controller.break_even()
        return msgspec.json.encode(answer).decode()
    except Exception as error:
        controller.fault(f"status raised {type(error).__name__}: {error}")
        return f'{{"fault": "the status cannot be told: {type(error).__name__}"}}'
