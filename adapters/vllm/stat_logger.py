"""Entry point of `vllm.stat_logger_plugins`: our figures on the page of a single API server.

vLLM builds the class in the API server. It logs nothing; it registers a collector that reads what
the engines last wrote (`metrics`) whenever the page is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from adaptive_spec.adapters.vllm.hooks import ATTRIBUTE
from adaptive_spec.adapters.vllm.metrics import GATHERED, model_name, status_path
from adaptive_spec.prometheus_figures import families


class RegistersFigures:
    """Registers the collector, where we are switched on and vLLM doesn't gather from files."""

    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        if not hasattr(vllm_config.scheduler_config, ATTRIBUTE) or os.environ.get(GATHERED):
            return
        from prometheus_client import REGISTRY

        REGISTRY.register(EngineFigures(vllm_config, engine_indexes))

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the figures come from the engines' schedulers."""

    def log_engine_initialized(self) -> None:
        """Nothing."""


def _base() -> Any:
    """vLLM's base class; without vLLM the entry point can be looked at all the same."""
    try:
        from vllm.v1.metrics.loggers import AggregateStatLoggerBase
    except ImportError:
        return object
    return AggregateStatLoggerBase


FiguresLogger = type("FiguresLogger", (RegistersFigures, _base()), {"__module__": __name__})


class EngineFigures:
    """A collector of `prometheus_client`: one scrape reads one small file per engine."""

    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        self._engines = {
            (model_name(vllm_config), str(index)): status_path(vllm_config.instance_id, index)
            for index in engine_indexes
        }

    def describe(self) -> list[Any]:
        """No names in advance, so that nothing is read while it is registered."""
        return []

    def collect(self) -> Iterator[Any]:
        """The families, of the engines that have written already."""
        found = []
        for labels, path in self._engines.items():
            try:
                found.append((labels, msgspec.json.decode(path.read_bytes())))
            except (OSError, msgspec.DecodeError):
                continue
        return families(found)
