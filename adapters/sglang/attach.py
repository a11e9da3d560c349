"""Controller and driver for a scheduler that SGLang has just built."""

from __future__ import annotations

import atexit
import logging
import os
from typing import Any

import msgspec

from adaptive_spec.adapters.sglang import facts
from adaptive_spec.adapters.sglang.agreement import Agreement
from adaptive_spec.adapters.sglang.capability import detect, drafts_are_sampled
from adaptive_spec.adapters.sglang.confidence import ConfidenceTap
from adaptive_spec.adapters.sglang.housekeeping import OverridesTrim, quieten
from adaptive_spec.adapters.sglang.identity import identity_of
from adaptive_spec.adapters.sglang.rules import attention_dp
from adaptive_spec.adapters.sglang.settings import Settings, Source
from adaptive_spec.adapters.sglang.steered_params import SteeredParams
from adaptive_spec.adapters.sglang.steps import StepDriver
from adaptive_spec.controller.controller import Controller
from adaptive_spec.engines.support import Support, controller_for, start_line
from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.operation.metrics import LiveFigures

LOG = logging.getLogger("sglang.adaptive_spec")


class Attached(msgspec.Struct):
    """Parts that are attached to a scheduler.

    Attributes:
        driver: decides and learns.
        params: what SGLang's worker asks.
        confidence: reads the drafter's certainty, if asked for.
        trim: keeps SGLang's list of overrides short, where it has one.
        metrics: Prometheus figures, where SGLang serves them.
        start_line: what rank 0 says; empty on the others.
        engine: number of the DP replica.
    """

    driver: StepDriver
    params: SteeredParams
    confidence: ConfidenceTap | None = None
    trim: OverridesTrim | None = None
    metrics: Metrics | None = None
    start_line: str = ""
    engine: int = 0

    def housekeeping(self, now: float, *, switched: bool = False) -> None:
        """Do the work that follows each batch, and a switch; give up what fails, with one line."""
        try:
            if self.trim is not None:
                self.trim.step()
        except Exception as error:
            self.trim = None
            LOG.warning("adaptive_spec: SGLang's overrides are not trimmed any more: %r", error)
        try:
            if self.metrics is not None:
                self.metrics.refresh(now, at_once=switched)
        except Exception as error:
            self.metrics = None
            LOG.warning("adaptive_spec: metrics are not kept up any more: %r", error)


def attach(
    scheduler: Any, settings: Settings, source: Source, *, reason: str = "", hooks: str = ""
) -> Attached | None:
    """Attach to a scheduler; log one line and return None where nothing is switched on.

    Args:
        scheduler: SGLang's Scheduler.
        settings: what was asked for.
        source: what this SGLang allows.
        reason: why the worker has no parameters of ours, if that is known.
        hooks: how many hooks were applied, for the start line.
    """
    group = getattr(scheduler, "tp_cpu_group", None)
    agreement = Agreement(group, rank_of_replica(getattr(scheduler, "server_args", None)))
    attached, why, failed = None, "", True
    try:
        params = params_of(scheduler.draft_worker)
        support = detect(scheduler, params, reason)
        why = support.inert
        if params is not None and support.capability is not None:
            attached = _build(scheduler, settings, source, support, params, agreement, hooks)
            if attached.start_line:
                lowered = (f"lacks {name} ({what})" for name, what in source.missing.items())
                said = filter(None, (attached.start_line, source.warning, *lowered))
                attached.start_line = "; ".join(said)
        failed = False
    except AdaptiveSpecError as error:
        why = str(error)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    if agreement.all_ready(attached is not None) and attached is not None:
        _switch_on(attached)
        return attached
    if attached is not None:
        attached.driver.close()
        why = "another rank has not got this plugin, or could not switch it on; see its log"
        failed = True
    if agreement.decides or failed:  # a rank that is told has nothing to say
        LOG.warning("adaptive_spec: nothing is switched on: %s", why)
    return None


def _build(
    scheduler: Any,
    settings: Settings,
    source: Source,
    support: Support,
    params: SteeredParams,
    agreement: Agreement,
    hooks: str,
) -> Attached:
    """Build all parts; SGLang does not use them yet.

    Raises PolicyError or ConfigError, one line, if the policy cannot be built.
    """
    tap = controller = None
    if agreement.decides and support.capability is not None:
        tap = _confidence(scheduler, settings, source.features)
        controller = controller_for(
            support,
            settings.config,
            LOG,
            missing=source.missing,
            identity=lambda: identity_of(scheduler),
        )
    driver = StepDriver(
        scheduler,
        params,
        agreement,
        controller,
        dwell=settings.dwell,
        watching=settings.config.mode != "on" or bool(support.shadow),
        confidence=tap,
        thinks=facts.PLANNING_AHEAD in source.features
        and not getattr(scheduler, "enable_overlap", True),
    )
    attached = Attached(driver, params, tap, _trim(source.features), engine=replica(scheduler))
    if controller is not None:
        attached.metrics = _metrics(scheduler, controller, attached.engine)
        nodes = ",".join(map(str, params.tree_nodes))
        attached.start_line = start_line(
            support,
            controller,
            details=filter(
                None,
                (
                    nodes and f"nodes={nodes}",
                    f"ranks={agreement.size}",
                    f"dwell={settings.dwell}",
                    f"hooks={hooks}",
                ),
            ),
        )
    return attached


def _switch_on(attached: Attached) -> None:
    """Connect the driver to SGLang's adaptive parameters and log the start line."""
    driver = attached.driver
    attached.params.driver = driver
    quieten(lambda: not driver.watching)
    if attached.start_line:
        atexit.register(driver.close)
        LOG.info("%s", attached.start_line)


def params_of(worker: Any) -> SteeredParams | None:
    """Return our parameters from a draft worker's adaptive controller or its own attribute."""
    controller = getattr(worker, "adaptive_controller", None)
    for found in (getattr(controller, "params", None), getattr(worker, "steered_params", None)):
        if isinstance(found, SteeredParams):
            return found
    return None


def _confidence(
    scheduler: Any, settings: Settings, features: frozenset[str]
) -> ConfidenceTap | None:
    if not settings.confidence:
        return None
    draft_worker = getattr(scheduler.draft_worker, "draft_worker", None)
    why = ""
    if facts.CONFIDENCE not in features:
        why = "this SGLang has changed where it is read"
    elif not hasattr(draft_worker, "draft_runner"):
        why = "there is no draft model"
    elif drafts_are_sampled(scheduler.server_args):
        why = "drafts are sampled"
    if why:
        LOG.warning("adaptive_spec: confidence is not read: %s", why)
        return None
    tap = ConfidenceTap()
    tap.watch(draft_worker)
    return tap


def _trim(features: frozenset[str]) -> OverridesTrim | None:
    if facts.OVERRIDES not in features:
        return None
    from sglang.srt.runtime_context import get_context

    return OverridesTrim(get_context())


def rank_of_replica(arguments: Any) -> int | None:
    """Return a rank's place in its replica of attention DP; None without."""
    if not attention_dp(arguments):
        return None
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    return int(parallel.attn_cp_rank * parallel.attn_tp_size + parallel.attn_tp_rank)


def replica(scheduler: Any) -> int:
    """Return the number of a scheduler's DP replica."""
    parallel = getattr(scheduler, "ps", None)
    try:
        if parallel is None:  # 0.5.20 still has it
            from sglang.srt.runtime_context import get_parallel

            parallel = get_parallel()
        return int(parallel.dp_rank or 0)
    except Exception as error:
        LOG.warning("adaptive_spec: no DP rank: %s: %s", type(error).__name__, error)
        return 0


def _metrics(scheduler: Any, controller: Controller, engine: int) -> Metrics | None:
    try:
        return metrics_for(scheduler, controller, engine)
    except Exception as error:  # figures are no reason to go without the rest
        LOG.warning("adaptive_spec: no metrics: %s: %s", type(error).__name__, error)
        return None


_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
_REFRESH_SECONDS = 1.0


class Metrics:
    """Copy of a controller's status in Prometheus, refreshed about once a second.

    SGLang gathers the figures of all its processes from files, by a variable that it sets before
    the scheduler is built. `prometheus_client` looks at that variable when it is imported, so
    nothing imports it before.
    """

    def __init__(self, controller: Controller, *, model_name: str, engine: str) -> None:
        self._controller = controller
        self._next = 0.0
        self._figures = LiveFigures(controller.status(), model_name=model_name, engine=engine)

    def refresh(self, now: float, *, at_once: bool = False) -> None:
        """Refresh the figures if the last refresh is long enough ago, or `at_once`."""
        if not at_once and 0 <= self._next - now <= _REFRESH_SECONDS:
            return
        self._next = now + _REFRESH_SECONDS
        self._figures.refresh(self._controller.recent_status())


def _served_model_name(server_args: Any) -> str:
    """Return the label ``model_name`` of SGLang's own figures."""
    try:  # 0.5.23; before, it is an argument
        from sglang.srt.runtime_context import get_serving

        name = get_serving().served_model_name
    except Exception:
        name = getattr(server_args, "served_model_name", None)
    return str(name or getattr(server_args, "model_path", ""))


def metrics_for(scheduler: Any, controller: Controller, engine: int) -> Metrics | None:
    """Return figures for this scheduler's server, None if SGLang serves none."""
    server_args = scheduler.server_args
    if not getattr(server_args, "enable_metrics", False) or not os.environ.get(_DIRECTORY):
        return None
    return Metrics(
        controller,
        model_name=_served_model_name(server_args),
        engine=str(engine),
    )
