"""Routes of a running server's status and switch, for an engine's HTTP application.

    GET     ``/v1/adaptive_spec``: status of every engine; only an operator sees paths of files, the
            task labels of clients and ids of their requests, others see numbers in place of labels;
            with ``?history=1`` its last ten minutes, too, with ``?break_even=1`` where drafts pay
    POST    {"mode": ..., "policy": ..., "options": ...}: an operator switches every engine, then
            the same

`operator_access` says who is an operator. ``/v1/adaptive_spec/view`` is a page that shows the
status live. A browser sends no key when it opens a page, so ``/adaptive_spec/view``, which an
engine may leave unguarded, is the same page, without figures until its reader has entered the key.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import resources
from typing import Any, Protocol

import msgspec

from adaptive_spec.bounded_read import decode_json
from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.operation.operator_access import OperatorAccess

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
_FOR_OPERATORS = (
    *("options", "trace_directory", "control_file_error"),
    *("stuck_latest", "label_drift", "ignored_hints"),
)
"""Parts of a status that may name files of the server, or a client's request, label or hint."""
_BY_LABEL = "drafts_by_task"
"""Part of a status whose names are texts of clients."""


class NotSwitchedOnError(AdaptiveSpecError):
    """Nothing is attached to the engines; the message says what an operator can do."""


class Engines(Protocol):
    """The way to the engines of a server."""

    async def __call__(
        self, request: dict[str, Any] | None, *, history: bool, break_even: bool
    ) -> Sequence[str]:
        """Return the answer of each engine, JSON of `adaptive_spec.engines.operator_answer`.

        Args:
            request: what is to change; None: nothing.
            history: whether figures of the last ten minutes are wanted.
            break_even: whether the accepted drafts that a round needs are wanted.

        Raises NotSwitchedOnError.
        """
        ...


class OperatorRoutes:
    """Routes of one server; nobody may switch before `access` is set.

    Args:
        engines: the way to the engines.
        log: of the engine.

    Attributes:
        engines: as given.
        access: who is an operator.
    """

    def __init__(self, engines: Engines, log: logging.Logger) -> None:
        self.engines = engines
        self.access = OperatorAccess("", local=False)
        self._log = log

    def attach(self, app: Any) -> None:
        """Add the routes to a Starlette or FastAPI application."""
        app.add_route(PATH, self._route, methods=["GET", "POST"])
        for path in VIEWS:
            app.add_route(path, self._view, methods=["GET"])

    async def _route(self, request: Any) -> Any:
        refusal = self.access.refusal(request.headers)
        if request.method == "POST":
            return _error(403, refusal) if refusal else await self._post(request)
        wanted = {part: bool(request.query_params.get(part)) for part in ("history", "break_even")}
        return await self._ask(None, operator=not refusal, **wanted)

    async def _view(self, request: Any) -> Any:
        from starlette.responses import HTMLResponse

        page = resources.files("adaptive_spec.operation").joinpath("view.html")
        return HTMLResponse(page.read_text(encoding="utf-8"), headers=_VIEW_HEADERS)

    async def _post(self, request: Any) -> Any:
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
            self._log.info("adaptive_spec: a client has gone before its POST was whole")
            return _error(400, "not whole")
        try:
            body = decode_json(content)
        except ValueError as error:
            return _error(400, f"not valid JSON: {error}")
        if not isinstance(body, dict):
            return _error(400, f"expected an object, got {type(body).__name__}")
        return await self._ask(body, operator=True)

    async def _ask(
        self,
        body: dict[str, Any] | None,
        *,
        operator: bool,
        history: bool = False,
        break_even: bool = False,
    ) -> Any:
        try:
            texts = await self.engines(body, history=history, break_even=break_even)
            engines = [decode_json(text) for text in texts]
        except NotSwitchedOnError as error:
            return _error(409, str(error))
        except Exception as error:
            return _error(502, f"the engines do not answer: {error}")
        if faults := sorted({engine["fault"] for engine in engines if "fault" in engine}):
            return _error(502, "; ".join(faults))
        if refused := sorted({engine["error"] for engine in engines if "error" in engine}):
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
    from starlette.responses import Response  # there where an engine serves, nowhere else

    # msgspec writes a number that is not finite as null.
    body = msgspec.json.encode(content)
    return Response(body, status_code=status, media_type="application/json")
