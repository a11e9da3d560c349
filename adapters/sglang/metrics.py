"""Prometheus figures, where SGLang serves them (``--enable-metrics``).

SGLang gathers the figures of all its processes from files, by a variable that it sets before the
scheduler is built. `prometheus_client` looks at that variable when it is imported, so nothing here
imports it before.
"""

from __future__ import annotations

import os
from typing import Any

from adaptive_spec.controller.controller import Controller
from adaptive_spec.operation.metrics import LiveFigures

_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
_REFRESH_SECONDS = 1.0


class Metrics:
    """Copy of a controller's status in Prometheus, refreshed about once a second."""

    def __init__(self, controller: Controller, *, model_name: str, engine: str) -> None:
        self._controller = controller
        self._next = 0.0
        self._figures = LiveFigures(controller.status(), model_name=model_name, engine=engine)

    def refresh(self, now: float) -> None:
        """Refresh the figures if the last refresh is long enough ago."""
        if 0 <= self._next - now <= _REFRESH_SECONDS:
            return
        self._next = now + _REFRESH_SECONDS
        self._figures.refresh(self._controller.status())


def metrics_for(scheduler: Any, controller: Controller) -> Metrics | None:
    """Return figures for this scheduler's server, None if SGLang serves none."""
    server_args = scheduler.server_args
    if not getattr(server_args, "enable_metrics", False) or not os.environ.get(_DIRECTORY):
        return None
    return Metrics(
        controller,
        model_name=str(getattr(server_args, "served_model_name", "") or ""),
        engine=str(getattr(scheduler, "dp_rank", None) or 0),
    )
