"""Our figures on the ``/metrics`` page of a single API server.

The configuration gate registers a collector of `prometheus_client` in the process that makes the
configuration, which is the API server. It reads what the engines last wrote (`metrics`) whenever
the page is asked for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

from adaptive_spec.adapters.vllm.metrics import GATHERED, model_name, status_path
from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.operation.metrics import families

_LOG = logging.getLogger("vllm.adaptive_spec")


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
                found.append((labels, decode_json(read_small_file(path))))
            except (OSError, ValueError):
                continue
        try:
            return iter(list(families(found)))
        except Exception as error:  # vLLM's figures stand on the same page
            _LOG.warning("adaptive_spec: figures: %s: %s", type(error).__name__, error)
            return iter(())
