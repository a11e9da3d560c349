"""Prometheus metrics of a controller's status, named ``adaptive_spec_*``.

One catalogue feeds two forms: `families` for a collector that runs at each scrape, and
`LiveFigures` for processes whose metrics `prometheus_client` gathers from files
(``PROMETHEUS_MULTIPROC_DIR``). Both read the result of `Controller.status`, which may come from
another process. All metrics carry the labels ``model_name`` and ``engine``.

The functions import `prometheus_client` late, because its import decides between single-process and
multi-process mode.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from adaptive_spec.operation.status import DECISION_SECONDS

GATHERED = "PROMETHEUS_MULTIPROC_DIR"
"""Folder from whose files `prometheus_client` gathers the figures of several processes."""
COMMON_LABELS = ("model_name", "engine")

Status: TypeAlias = Mapping[str, Any]
Values: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Pairs of own label values and metric value."""


class Figure(msgspec.Struct, frozen=True):
    """Counter or gauge of the catalogue.

    Attributes:
        name: name without ``_total``, which Prometheus adds to counters.
        kind: ``counter`` or ``gauge``.
        text: help text.
        labels: own labels.
        read: reader of the values in a status.
    """

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    labels: tuple[str, ...]
    read: Callable[[Status], Values]


class Distribution(msgspec.Struct, frozen=True):
    """Histogram of the catalogue.

    Attributes:
        name: name without ``_bucket``, ``_sum``, ``_count``.
        text: help text.
        bounds: upper bounds of its buckets, without infinity.
        counts: count of each bucket in the bounds' order, and of the bucket beyond the last bound.
        total: sum of the observed values.
    """

    name: str
    text: str
    bounds: Callable[[Status], Sequence[float]]
    counts: Callable[[Status], Sequence[int]]
    total: Callable[[Status], float]


def _one(key: str) -> Callable[[Status], Values]:
    return lambda status: [((), status[key])]


def _each(key: str) -> Callable[[Status], Values]:
    return lambda status: [((name,), value) for name, value in status[key].items()]


def _decisions(status: Status) -> Values:
    for mode, reasons in status["reasons_by_mode"].items():
        for reason, count in reasons.items():
            yield (mode, reason), count


def _hazards(figure: str) -> Callable[[Status], Values]:
    """Read a calibration figure by prediction source and by position, from 1 and ``all``."""

    def read(status: Status) -> Values:
        for source, quality in status.get("hazards", {}).items():
            by_position = enumerate(quality[f"{figure}_by_position"], start=1)
            for position, value in (("all", quality[figure]), *by_position):
                if value is not None:
                    yield (source, str(position)), value

    return read


def _positions(status: Status) -> Values:
    """Count the drafts of each position, from 0: the requests that verified, or accepted, more."""
    for state, counts in (
        ("verified", status["requests_by_k"]),
        ("accepted", status["requests_by_accepted"]),
    ):
        for position in range(status["max_draft_tokens"]):
            more = (count for k, count in counts.items() if int(k) > position)
            yield (str(position), state), sum(more)


def _measured(status: Status) -> Values:
    for arm, figures in status.get("audit", {}).get("arms", {}).items():
        for since, found in (("start", figures), ("hour", figures["hour"])):
            for bound in ("low", "gain", "high"):
                if bound in found:
                    yield (arm, since, bound), found[bound]


def _blocks(status: Status) -> Values:
    for arm, figures in status.get("audit", {}).get("arms", {}).items():
        yield (arm,), figures["blocks"]


def _k_counts(status: Status) -> list[int]:
    by_k = status["requests_by_k"]
    return [*(by_k.get(str(k), 0) for k in range(status["max_draft_tokens"] + 1)), 0]


FIGURES: tuple[Figure, ...] = (
    Figure(
        "adaptive_spec_drafted_tokens",
        "counter",
        "Draft tokens available for verification, within the limits of engine and request.",
        (),
        _one("drafted_tokens"),
    ),
    Figure(
        "adaptive_spec_verified_tokens",
        "counter",
        "Draft tokens that were verified.",
        (),
        _one("verified_tokens"),
    ),
    Figure(
        "adaptive_spec_accepted_tokens",
        "counter",
        "Draft tokens that were accepted.",
        (),
        _one("accepted_tokens"),
    ),
    Figure(
        "adaptive_spec_position_tokens",
        "counter",
        "Drafts by position, from 0: verified, and accepted.",
        ("position", "state"),
        _positions,
    ),
    Figure(
        "adaptive_spec_lookup_tokens",
        "counter",
        "Drafts of the look-up: found, agreed (right, verified or not), verified, accepted.",
        ("state",),
        _each("lookup"),
    ),
    Figure(
        "adaptive_spec_emitted_tokens",
        "counter",
        "Tokens emitted by decode steps.",
        (),
        _one("emitted_tokens"),
    ),
    Figure(
        "adaptive_spec_decisions",
        "counter",
        "Steps by mode and by the policy's reason; # replaces numbers.",
        ("mode", "reason"),
        _decisions,
    ),
    Figure(
        "adaptive_spec_fail_opens",
        "counter",
        "Faults answered by the engine's own K.",
        ("kind",),
        _each("fail_opens"),
    ),
    Figure(
        "adaptive_spec_output_failures",
        "counter",
        "Failed attempts to write status, trace, saved state or figures; they are repeated.",
        ("output",),
        _each("output_failures"),
    ),
    Figure(
        "adaptive_spec_ignored_hints",
        "counter",
        "Hints of requests that were ignored; status and log name the first of each key.",
        (),
        lambda status: [((), sum(status["ignored_hints"].values()))],
    ),
    Figure(
        "adaptive_spec_events",
        "counter",
        "Other events of requests; the engine's page lists them.",
        ("event",),
        _each("events"),
    ),
    Figure(
        "adaptive_spec_draft_depth",
        "gauge",
        "Draft depth of the last decision.",
        (),
        _one("last_depth"),
    ),
    Figure(
        "adaptive_spec_status_timestamp_seconds",
        "gauge",
        "When the engine wrote the status behind this page (Unix time); it writes none while idle.",
        (),
        _one("written"),
    ),
    Figure(
        "adaptive_spec_live_requests",
        "gauge",
        "Requests with state in the policy.",
        (),
        _one("live_requests"),
    ),
    Figure(
        "adaptive_spec_requests_without_drafter",
        "gauge",
        "Live requests that have lost the drafter (OFF-cold): they decode without drafts.",
        (),
        _one("requests_without_drafter"),
    ),
    Figure(
        "adaptive_spec_goodput_tokens_per_second",
        "gauge",
        "Predicted and measured goodput of the last predicted steps.",
        ("side",),
        _each("goodput"),
    ),
    Figure(
        "adaptive_spec_estimated_tokens_per_second",
        "gauge",
        "Expected of the last 200 steps without speculation (no_speculation), with the engine's "
        "own K (engine_k) and as planned; their ratio is the worth of speculation.",
        ("setup",),
        lambda status: [((name,), value) for name, value in status.get("estimates", {}).items()],
    ),
    Figure(
        "adaptive_spec_measured_gain",
        "gauge",
        "Measured gain in tokens per second over an arm (0.1: 10 %), with the bounds of 95 % that "
        "hold at all times at once; since the start, and of the last hour.",
        ("arm", "since", "bound"),
        _measured,
    ),
    Figure(
        "adaptive_spec_audit_blocks",
        "counter",
        "Audit blocks that were compared with the steps beside them.",
        ("arm",),
        _blocks,
    ),
    Figure(
        "adaptive_spec_handed_back",
        "gauge",
        "1 for a load (requests per step, or all) at which the guard has handed back to the "
        "engine's own K, because the plugin is measurably slower.",
        ("load",),
        lambda status: [((load,), 1) for load in status.get("audit", {}).get("handed_back", ())],
    ),
    Figure(
        "adaptive_spec_benched",
        "gauge",
        "1 while the policy is benched after repeated faults and the engine's own K runs.",
        (),
        lambda status: [((), status.get("benched", False))],
    ),
    Figure(
        "adaptive_spec_hazard_auc",
        "gauge",
        "Area under the ROC curve of predicted acceptance, 0.5 to 1: from finished rounds "
        "(history), and with the drafter's confidence added.",
        ("source", "position"),
        _hazards("auc"),
    ),
    Figure(
        "adaptive_spec_hazard_calibration_error",
        "gauge",
        "Expected calibration error of predicted acceptance, over 20 bins.",
        ("source", "position"),
        _hazards("ece"),
    ),
    Figure(
        "adaptive_spec_state",
        "gauge",
        "1 for the active mode and policy.",
        ("mode", "policy"),
        lambda status: [((status["mode"], status["policy"]), 1)],
    ),
)

DISTRIBUTIONS: tuple[Distribution, ...] = (
    Distribution(
        "adaptive_spec_verified_per_request",
        "Drafts verified per request and step: K.",
        lambda status: range(status["max_draft_tokens"] + 1),
        _k_counts,
        lambda status: status["verified_tokens"],
    ),
    Distribution(
        "adaptive_spec_decision_seconds",
        "Time of a decision in seconds.",
        lambda status: DECISION_SECONDS,
        lambda status: status["decisions_by_time"],
        lambda status: status["decision_seconds"],
    ),
)


def families(statuses: Sequence[tuple[tuple[str, str], Status]]) -> Iterator[Any]:
    """Yield the metric families of `prometheus_client` for several engines.

    Args:
        statuses: common label values and status of each engine.
    """
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    make = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    for figure in FIGURES:
        family = make[figure.kind](
            figure.name, figure.text, labels=[*COMMON_LABELS, *figure.labels]
        )
        for common, status in statuses:
            for own, value in figure.read(status):
                family.add_metric([*common, *own], value)
        yield family
    for distribution in DISTRIBUTIONS:
        family = HistogramMetricFamily(
            distribution.name, distribution.text, labels=list(COMMON_LABELS)
        )
        for common, status in statuses:
            bounds = [*(str(float(bound)) for bound in distribution.bounds(status)), "+Inf"]
            heights = list(accumulate(distribution.counts(status)))
            family.add_metric(
                list(common),
                list(zip(bounds, heights, strict=True)),
                distribution.total(status),
            )
        yield family


def markdown_table() -> str:
    """Render the catalogue for an engine's page: name, own labels, help text."""
    rows = [("figure", "labels", ""), ("---", "---", "---")]
    for figure in FIGURES:
        name = figure.name + ("_total" if figure.kind == "counter" else "")
        rows.append((f"`{name}`", ", ".join(figure.labels), figure.text))
    rows += [(f"`{each.name}` (histogram)", "", each.text) for each in DISTRIBUTIONS]
    return "\n".join(f"| {' | '.join(row)} |".replace("  ", " ") for row in rows)


class LiveFigures:
    """Metrics as live objects of `prometheus_client`, refreshed from time to time.

    Args:
        status: a first status, for the number of drafts.
        model_name: value of the label ``model_name``.
        engine: value of the label ``engine``.
    """

    def __init__(self, status: Status, *, model_name: str, engine: str) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        _remove_gauges_of_the_dead()
        self._common = (model_name, engine)
        self._shown: dict[tuple[str, tuple[str, ...]], float] = {}
        self._objects: dict[str, Any] = {}
        for figure in FIGURES:
            labels = (*COMMON_LABELS, *figure.labels)
            if figure.kind == "counter":
                self._objects[figure.name] = Counter(figure.name, figure.text, labels)
            else:
                self._objects[figure.name] = Gauge(
                    figure.name, figure.text, labels, multiprocess_mode="livemostrecent"
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


def _remove_gauges_of_the_dead() -> None:
    """Remove the gauges that processes which have ended left in the folder of all processes."""
    from prometheus_client.multiprocess import mark_process_dead

    folder = Path(os.environ[GATHERED])
    for path in folder.glob("gauge_live*.db"):
        process = path.stem.rpartition("_")[2]
        if process.isdecimal() and not _is_alive(int(process)):
            mark_process_dead(process, str(folder))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _add(histogram: Any, counts: Sequence[int], total: float) -> None:
    """Add counts to a histogram's buckets, the last one unbounded, and to the sum of its values.

    `prometheus_client` accepts only single observations; a refresh adds thousands.
    """
    for bucket, count in zip(histogram._buckets, counts, strict=True):
        if count:
            bucket.inc(count)
    if total:
        histogram._sum.inc(total)
