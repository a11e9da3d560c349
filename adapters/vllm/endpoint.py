"""Entry point of `vllm.endpoint_plugins`: ``/v1/adaptive_spec`` on vLLM's API server.

    GET     status of every engine; only an operator sees paths of files, the task labels of clients
            and ids of their requests, others see numbers in place of labels; with ``?history=1``
            its last ten minutes, too, with ``?break_even=1`` where drafts pay
    POST    {"mode": ..., "policy": ..., "options": ...}: an operator switches every engine, then
            the same

`operator_access` says who is an operator. ``/v1/adaptive_spec/view`` is a page that shows the
status live. Under ``/v1`` all is guarded by ``--api-key`` like the other routes. A browser sends no
key when it opens a page, so ``/adaptive_spec/view`` is the same page, without figures until its
reader has entered the key. vLLM loads such plugins only if ``VLLM_PLUGINS`` names them.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from importlib import resources
from typing import Any

import msgspec

from adaptive_spec.adapters.vllm.compat import call_all_engines
from adaptive_spec.adapters.vllm.control import METHOD
from adaptive_spec.adapters.vllm.hooks import ATTRIBUTE
from adaptive_spec.adapters.vllm.operator_access import OperatorAccess
from adaptive_spec.bounded_read import decode_json
from adaptive_spec.errors import ConfigError

_LOG = logging.getLogger("vllm.adaptive_spec")

PATH = "/v1/adaptive_spec"
VIEWS = (f"{PATH}/view", "/adaptive_spec/view")
_VIEW_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; frame-ancestors 'none'; form-action 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}
_LARGEST_BYTES = 1 << 16
_CLIENT = "adaptive_spec_client"
_ACCESS = "adaptive_spec_access"
_FOR_OPERATORS = (
    *("options", "trace_directory", "control_file_error"),
    *("stuck_latest", "label_drift", "ignored_hints"),
)
"""Parts of a status that may name files of the server, or a client's request, label or hint."""
_BY_LABEL = "drafts_by_task"
"""Part of a status whose names are texts of clients."""
_NOT_ON = (
    "adaptive_spec is not switched on in this server: start it with an `adaptive_spec` "
    "configuration, with mode `shadow` if it is to do nothing at first"
)


class ControlEndpoint:
    """Satisfies vLLM's `EndpointPlugin`."""

    name = "adaptive_spec"
    required_tasks = ("generate",)

    def attach_router(self, app: Any) -> None:
        """Add the routes to vLLM's FastAPI application."""
        app.add_route(PATH, _route, methods=["GET", "POST"])
        for path in VIEWS:
            app.add_route(path, _view, methods=["GET"])

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Remember the way to the engines, if we are switched on there."""
        config = getattr(engine_client, "vllm_config", None)
        enabled = hasattr(getattr(config, "scheduler_config", None), ATTRIBUTE)
        client = getattr(engine_client, "engine_core", None) if enabled else None
        setattr(state, _CLIENT, client)
        try:
            access = OperatorAccess.of_server(args)
        except ConfigError as error:
            _LOG.error("adaptive_spec: %s: %s is read-only", error, PATH)
            access = OperatorAccess("", local=False)
        setattr(state, _ACCESS, access)


async def _route(request: Any) -> Any:
    access = getattr(request.app.state, _ACCESS, None) or OperatorAccess("", local=False)
    refusal = access.refusal(request.headers)
    if request.method != "POST":
        wanted = [bool(request.query_params.get(part)) for part in ("history", "break_even")]
        return await _ask(request, None, *wanted, operator=not refusal)
    if refusal:
        return _error(403, refusal)
    return await _post(request)


async def _view(request: Any) -> Any:
    from fastapi.responses import HTMLResponse

    page = resources.files("adaptive_spec.operation").joinpath("view.html")
    return HTMLResponse(page.read_text(encoding="utf-8"), headers=_VIEW_HEADERS)


async def _post(request: Any) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page in a browser may post any other type unasked
        return _error(415, "send the header Content-Type: application/json")
    from starlette.requests import ClientDisconnect

    content = b""
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > _LARGEST_BYTES:
                return _error(413, f"more than {_LARGEST_BYTES} bytes")
    except ClientDisconnect:
        _LOG.info("adaptive_spec: a client has gone before its POST was whole")
        return _error(400, "not whole")
    try:
        body = decode_json(content)
    except ValueError as error:
        return _error(400, f"not valid JSON: {error}")
    if not isinstance(body, dict):
        return _error(400, f"expected an object, got {type(body).__name__}")
    return await _ask(request, body, operator=True)


async def _ask(request: Any, *arguments: Any, operator: bool) -> Any:
    client = getattr(request.app.state, _CLIENT, None)
    if client is None:
        return _error(409, _NOT_ON)
    try:
        engines = [decode_json(text) for text in await call_all_engines(client, METHOD, *arguments)]
    except Exception as error:
        return _error(502, f"the engines do not answer: {error}")
    if faults := sorted({engine["fault"] for engine in engines if "fault" in engine}):
        return _error(502, "; ".join(faults))
    refused = sorted({engine["error"] for engine in engines if "error" in engine})
    if refused:
        return _error(400, "; ".join(refused))
    if not operator:
        for engine in engines:
            engine["status"] = _for_clients(engine["status"])
    return _answer(200, {"engines": sorted(engines, key=lambda engine: int(engine["engine"]))})


def _for_clients(status: dict[str, Any]) -> dict[str, Any]:
    """Return what of a status others than operators may see."""
    shown = {name: value for name, value in status.items() if name not in _FOR_OPERATORS}
    drafts = shown.get(_BY_LABEL, {}).values()
    return shown | {_BY_LABEL: {f"label {n}": each for n, each in enumerate(drafts, start=1)}}


def _error(status: int, message: str) -> Any:
    return _answer(status, {"error": message})


def _answer(status: int, content: dict[str, Any]) -> Any:
    from fastapi.responses import Response  # there where vLLM serves, nowhere else

    # msgspec writes a number that is not finite as null.
    body = msgspec.json.encode(content)
    return Response(body, status_code=status, media_type="application/json")
