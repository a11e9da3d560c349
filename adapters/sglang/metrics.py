"""Prometheus figures, where SGLang serves them (``--enable-metrics``).

`prometheus_client` decides at import whether it works across processes, by a variable that SGLang
sets; so it is imported here only once the scheduler is built and that variable is there.
"""

from __future__ import annotations

import os
from typing import Any

from adaptive_spec.controller import Controller

_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
_REFRESH_SECONDS = 1.0


class Metrics:
    """Copies a controller's counters to Prometheus about once a second."""

    def __init__(self, controller: Controller, model_name: str) -> None:
        from prometheus_client import Counter, Gauge

        names = ("model_name", "engine")
        self._labels = {"model_name": model_name, "engine": "sglang"}
        self._controller = controller
        self._next = 0.0
        self._shown: dict[tuple[str, str], float] = {}
        self._tokens = {
            key: Counter(f"adaptive_spec_{key}", text, names)
            for key, text in (
                ("verified_tokens", "Draft tokens that were verified."),
                ("accepted_tokens", "Draft tokens that were accepted."),
                ("emitted_tokens", "Tokens emitted by decode steps."),
            )
        }
        self._by = {
            "steps_by_mode": Counter(
                "adaptive_spec_decisions", "Decode steps by mode.", (*names, "mode")
            ),
            "fail_opens": Counter(
                "adaptive_spec_fail_opens", "Faults answered by SGLang's own K.", (*names, "kind")
            ),
        }
        self._k = Gauge(
            "adaptive_spec_draft_depth",
            "K of the last decision.",
            names,
            multiprocess_mode="mostrecent",
        )

    def refresh(self, now: float) -> None:
        """Bring the figures up to date if the last time is long enough ago."""
        if 0 <= self._next - now <= _REFRESH_SECONDS:
            return
        self._next = now + _REFRESH_SECONDS
        status = self._controller.counters.snapshot()
        for key, counter in self._tokens.items():
            self._add(counter.labels(**self._labels), key, "", status[key])
        for key, counter in self._by.items():
            for value, count in status[key].items():
                label = {"steps_by_mode": "mode", "fail_opens": "kind"}[key]
                self._add(counter.labels(**self._labels, **{label: value}), key, value, count)
        self._k.labels(**self._labels).set(status["last_depth"])

    def _add(self, counter: Any, key: str, value: str, total: float) -> None:
        shown = self._shown.get((key, value), 0.0)
        if total > shown:
            counter.inc(total - shown)
            self._shown[key, value] = total


def metrics_for(scheduler: Any, controller: Controller) -> Metrics | None:
    """Figures for this scheduler's server, None where SGLang serves none."""
    server_args = scheduler.server_args
    if not getattr(server_args, "enable_metrics", False) or not os.environ.get(_DIRECTORY):
        return None
    return Metrics(controller, str(getattr(server_args, "served_model_name", "") or ""))
