"""Prometheus figures of an EngineCore, on the route that reaches vLLM's ``/metrics``.

The API server serves that page, and decides in another process than this one:

* Several API servers, or ``PROMETHEUS_MULTIPROC_DIR`` set by the operator: vLLM gathers figures
  from files that all its processes write. Ordinary objects of `prometheus_client` arrive there.
* One API server: it shows its own process's figures only. About once a second this process writes
  its status to a file named after the server. The configuration gate registers a collector in the
  process that makes the configuration, which is the API server (`EngineFigures`): it reads what the
  engines last wrote whenever the page is asked for.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.controller.controller import Controller
from adaptive_spec.operation.metrics import GATHERED, LiveFigures, families
from adaptive_spec.operation.output_file import OwnedFile, Retry, remove_leftovers

_REFRESH_SECONDS = 1.0
_LOG = logging.getLogger("vllm.adaptive_spec")
_PREFIX = f"adaptive_spec-{os.getuid()}-"


class Metrics:
    """Publishes a controller's status about once a second, and when the engine falls idle."""

    def __init__(self, vllm_config: Any, controller: Controller) -> None:
        self._controller = controller
        self._next = 0.0
        self._retry = Retry("figures", controller.counters.output_failed, _LOG)
        engine = engine_index(vllm_config)
        self._live: LiveFigures | None = None
        self._file: OwnedFile | None = None
        if os.environ.get(GATHERED):
            self._live = LiveFigures(
                controller.status(), model_name=model_name(vllm_config), engine=str(engine)
            )
        else:
            path = status_path(vllm_config.instance_id, engine)
            remove_leftovers(path.parent, rf"{_PREFIX}[\w-]+\.json")
            self._file = OwnedFile(path)

    def refresh(self, now: float, *, idle: bool = False) -> None:
        """Publish, if the last time is long enough ago or nothing will follow for now."""
        if not idle and 0 <= self._next - now <= _REFRESH_SECONDS:
            return
        self._next = now + _REFRESH_SECONDS
        self._retry.attempt(now, self._show)

    def _show(self) -> None:
        status = self._controller.recent_status()
        if self._live is not None:
            self._live.refresh(status)
        elif self._file is not None:
            self._file.replace(msgspec.json.encode(status))

    def close(self) -> None:
        """Take the file away."""
        if self._file is not None:
            self._file.remove()


def status_path(instance_id: str, engine: int) -> Path:
    """The file of one engine of a server; vLLM gives every server an id of its own."""
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{instance_id}-{engine}.json"


def engine_index(vllm_config: Any) -> int:
    """The number vLLM gives this engine in its own figures."""
    return int(vllm_config.parallel_config.data_parallel_index)


def model_name(vllm_config: Any) -> str:
    """The name under which vLLM's own figures show the model."""
    served = vllm_config.model_config.served_model_name
    return str(served[0] if isinstance(served, list) else served)


def show_figures(vllm_config: Any) -> None:
    """Register a collector for the engines of this configuration. Never raises."""
    try:
        from prometheus_client import REGISTRY

        REGISTRY.register(EngineFigures(vllm_config))
    except Exception as error:
        _LOG.warning("adaptive_spec: no figures on /metrics: %s: %s", type(error).__name__, error)


class EngineFigures:
    """A collector of `prometheus_client`: one scrape reads one small file per engine."""

    def __init__(self, vllm_config: Any) -> None:
        self._engines = {
            (model_name(vllm_config), str(index)): status_path(vllm_config.instance_id, index)
            for index in range(vllm_config.parallel_config.data_parallel_size)
        }

    def describe(self) -> list[Any]:
        """Return no names, so that registration reads no file."""
        return []

    def collect(self) -> Iterator[Any]:
        """The families, of the engines that have written already."""
        if os.environ.get(GATHERED):  # vLLM gathers from files, ours among them
            return iter(())
        found = []
        for labels, path in self._engines.items():
            try:
                found.append((labels, decode_json(read_small_file(path, own=True))))
            except (OSError, ValueError):
                continue
        try:
            return iter(list(families(found)))
        except Exception as error:  # vLLM's figures stand on the same page
            _LOG.warning("adaptive_spec: figures: %s: %s", type(error).__name__, error)
            return iter(())
