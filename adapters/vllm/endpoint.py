"""Entry point of `vllm.endpoint_plugins`: ``/v1/adaptive_spec`` on vLLM's API server.

`adaptive_spec.operation.http_routes` has the routes. Under ``/v1`` all is guarded by ``--api-key``
like the other routes. vLLM loads such plugins only if ``VLLM_PLUGINS`` names them.
"""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from typing import Any

from adaptive_spec.adapters.vllm.compat import call_all_engines
from adaptive_spec.adapters.vllm.control import METHOD
from adaptive_spec.adapters.vllm.hooks import ATTRIBUTE
from adaptive_spec.operation.http_routes import NotSwitchedOnError, OperatorRoutes
from adaptive_spec.operation.operator_access import OperatorAccess

_LOG = logging.getLogger("vllm.adaptive_spec")
_NOT_ON = (
    "adaptive_spec is not switched on in this server: start it with an `adaptive_spec` "
    "configuration, with mode `shadow` if it is to do nothing at first"
)


class ControlEndpoint:
    """Satisfies vLLM's `EndpointPlugin`."""

    name = "adaptive_spec"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self.routes = OperatorRoutes(self._engines, _LOG)
        self.client: Any = None
        """vLLM's client of its engines; None: nothing is switched on in them."""

    def attach_router(self, app: Any) -> None:
        """Add the routes to vLLM's FastAPI application."""
        self.routes.attach(app)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Remember the way to the engines, if we are switched on there."""
        config = getattr(engine_client, "vllm_config", None)
        enabled = hasattr(getattr(config, "scheduler_config", None), ATTRIBUTE)
        self.client = getattr(engine_client, "engine_core", None) if enabled else None
        self.routes.access = operators(args)

    async def _engines(
        self, request: dict[str, Any] | None, *, history: bool, break_even: bool
    ) -> list[str]:
        if self.client is None:
            raise NotSwitchedOnError(_NOT_ON)
        return await call_all_engines(self.client, METHOD, request, history, break_even)


def operators(args: Namespace) -> OperatorAccess:
    """Return who may switch a server with this command line."""
    keys = getattr(args, "api_key", None) or os.environ.get("VLLM_API_KEY")
    guarded = bool(keys or getattr(args, "uds", None))
    return OperatorAccess.of_server(getattr(args, "host", None), _LOG, guarded=guarded)
