"""Status and switch over SGLang's HTTP server, both ends: ``/v1/adaptive_spec``.

`adaptive_spec.operation.http_routes` has the routes; SGLang guards them by ``--api-key``. They
reach the schedulers by the request behind SGLang's own ``/server_info``, which each DP replica
answers between two steps. Its field `rid` is unused there: with our mark and JSON in it, the answer
is ours.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from adaptive_spec.engines.operator_answer import operator_answer
from adaptive_spec.operation.http_routes import NotSwitchedOnError, OperatorRoutes
from adaptive_spec.operation.operator_access import OperatorAccess

if TYPE_CHECKING:
    from adaptive_spec.adapters.sglang.attach import Attached

_LOG = logging.getLogger("sglang.adaptive_spec")
HTTP_SERVER = "sglang.srt.entrypoints.http_server"
_MARK = "adaptive_spec "
_KEY = "adaptive_spec"
_NOT_ON = "adaptive_spec is not switched on in this server: its log says why"


class _Question(msgspec.Struct, frozen=True):
    """Question to each scheduler; see `operator_answer`."""

    request: dict[str, Any] | None
    history: bool
    break_even: bool


def serve(arguments: Any) -> None:
    """Add the routes to SGLang's HTTP server, once, if this process is to be one.

    Args:
        arguments: SGLang's ServerArgs, which it checks before it starts its schedulers.
    """
    server = sys.modules.get(HTTP_SERVER)
    if server is None or hasattr(server.app.state, _KEY):
        return
    routes = OperatorRoutes(_Schedulers(server), _LOG)
    keys = (getattr(arguments, name, None) for name in ("api_key", "admin_api_key"))
    routes.access = OperatorAccess.of_server(arguments.host, _LOG, guarded=any(keys))
    routes.attach(server.app)
    setattr(server.app.state, _KEY, routes)


class _Schedulers:
    """Satisfies `Engines`.

    Args:
        server: the module `HTTP_SERVER`, which gets its way to the schedulers as it starts.
    """

    def __init__(self, server: Any) -> None:
        self._server = server

    async def __call__(
        self, request: dict[str, Any] | None, *, history: bool, break_even: bool
    ) -> list[str]:
        from sglang.srt.managers.io_struct import GetInternalStateReq

        manager = self._server.get_global_state().tokenizer_manager
        manager.auto_create_handle_loop()
        asked = msgspec.json.encode(_Question(request, history, break_even)).decode()
        call = manager.get_internal_state_communicator(GetInternalStateReq(rid=_MARK + asked))
        # Were it given up half-way, the next caller would get what was meant for this one.
        states = [each.internal_state for each in await asyncio.shield(asyncio.ensure_future(call))]
        if any(_KEY not in state for state in states):
            raise NotSwitchedOnError(_NOT_ON)
        return [state[_KEY] for state in states]


def answered(request: Any, attached: Attached | None) -> Any:
    """Return a scheduler's answer to a request for its state; None: SGLang's own is wanted.

    Args:
        request: SGLang's GetInternalStateReq.
        attached: what hangs on the scheduler; None: nothing.
    """
    mark = getattr(request, "rid", None)
    if not isinstance(mark, str) or not mark.startswith(_MARK):
        return None
    from sglang.srt.managers.io_struct import GetInternalStateReqOutput

    controller = None if attached is None else attached.driver.controller
    if attached is None or controller is None:
        return GetInternalStateReqOutput(internal_state={})
    asked = msgspec.json.decode(mark.removeprefix(_MARK), type=_Question)
    text = operator_answer(
        controller,
        lambda: attached.engine,
        asked.request,
        history=asked.history,
        break_even=asked.break_even,
        publish=lambda: attached.housekeeping(time.monotonic(), switched=True),
    )
    return GetInternalStateReqOutput(internal_state={_KEY: text})
