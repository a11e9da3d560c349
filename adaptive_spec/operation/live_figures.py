"""Metrics of this process as objects of `prometheus_client`, for ``PROMETHEUS_MULTIPROC_DIR``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adaptive_spec.operation.metrics import (
    COMMON_LABELS,
    DISTRIBUTIONS,
    FIGURES,
    Figure,
    Status,
)


class LiveFigures:
    """Metrics as live objects of `prometheus_client`, refreshed from time to time.

    Args:
        status: a first status, for the number of drafts.
        model_name: value of the label ``model_name``.
        engine: value of the label ``engine``.
    """

    def __init__(self, status: Status, *, model_name: str, engine: str) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        self._common = (model_name, engine)
        self._shown: dict[tuple[str, tuple[str, ...]], float] = {}
        self._objects: dict[str, Any] = {}
        for figure in FIGURES:
            labels = (*COMMON_LABELS, *figure.labels)
            if figure.kind == "counter":
                self._objects[figure.name] = Counter(figure.name, figure.text, labels)
            else:
                self._objects[figure.name] = Gauge(
                    figure.name, figure.text, labels, multiprocess_mode="mostrecent"
                )
        self._histograms = {
            distribution.name: Histogram(
                distribution.name,
                distribution.text,
                COMMON_LABELS,
                buckets=[float(bound) for bound in distribution.bounds(status)],
            ).labels(*self._common)
            for distribution in DISTRIBUTIONS
        }
        self._heights: dict[str, tuple[list[int], float]] = {
            distribution.name: ([0] * len(distribution.counts(status)), 0.0)
            for distribution in DISTRIBUTIONS
        }

    def refresh(self, status: Status) -> None:
        """Update the metrics to a later status of the same controller."""
        for figure in FIGURES:
            seen = set()
            for own, value in figure.read(status):
                seen.add(own)
                self._show(figure, own, value)
            if figure.kind == "gauge":
                for name, own in list(self._shown):
                    if name == figure.name and own not in seen:
                        self._show(figure, own, 0.0)
        for distribution in DISTRIBUTIONS:
            before, total_before = self._heights[distribution.name]
            counts, total = list(distribution.counts(status)), float(distribution.total(status))
            more = [max(now - then, 0) for now, then in zip(counts, before, strict=True)]
            _add(self._histograms[distribution.name], more, max(total - total_before, 0.0))
            self._heights[distribution.name] = counts, total

    def _show(self, figure: Figure, own: tuple[str, ...], value: float) -> None:
        key = figure.name, own
        shown = self._shown.get(key, 0.0)
        labelled = self._objects[figure.name].labels(*self._common, *own)
        if figure.kind == "gauge":
            labelled.set(value)
        elif value > shown:
            labelled.inc(value - shown)
        self._shown[key] = value


def _add(histogram: Any, counts: Sequence[int], total: float) -> None:
    """Add counts to a histogram's buckets, the last one unbounded, and to the sum of its values.

    `prometheus_client` accepts only single observations; a refresh adds thousands.
    """
    for bucket, count in zip(histogram._buckets, counts, strict=True):
        if count:
            bucket.inc(count)
    if total:
        histogram._sum.inc(total)
