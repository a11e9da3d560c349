"""The scheduler methods we override. Each calls vLLM's own exactly once, whatever we do.

Exceptions of vLLM pass through unchanged; ours do not leave `StepDriver`.
"""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakSet

from adaptive_spec.adapters.vllm import control, drafter_state, graph_ladder, varlen_graphs
from adaptive_spec.adapters.vllm.capability import (
    Support,
    advice_on_kmax,
    detect,
    lookup_placement,
)
from adaptive_spec.adapters.vllm.lookup import LookUp, Placement
from adaptive_spec.adapters.vllm.metrics import Metrics
from adaptive_spec.adapters.vllm.steps import StepDriver
from adaptive_spec.config import Config
from adaptive_spec.controller.controller import Controller
from adaptive_spec.engines import support

ATTRIBUTE = "adaptive_spec"
"""Name under which the gate leaves our configuration on `SchedulerConfig`."""

LOG = logging.getLogger("vllm.adaptive_spec")
_DRIVERS: WeakSet[StepDriver] = WeakSet()
"""Drivers of this process's engines that have not been shut down."""


class AdaptiveScheduling:
    """Mixed in before vLLM's `Scheduler` or `AsyncScheduler`."""

    adaptive_spec: StepDriver

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        engine: Any = super()
        engine.__init__(*args, **kwargs)
        self.adaptive_spec = attach(self)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Plan and trim, then schedule."""
        engine: Any = super()
        driver = self.adaptive_spec
        driver.before_schedule()
        try:
            return engine.schedule(*args, **kwargs)
        finally:
            if driver.table_replaced:
                driver.after_schedule()

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        engine: Any = super()
        # Before vLLM: with async scheduling it makes as many placeholders as will be drafted.
        self.adaptive_spec.scheduled(scheduler_output)
        engine._update_after_schedule(scheduler_output)

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """Plan ahead: EngineCore calls this once the device works on the step."""
        engine: Any = super()
        bitmask = engine.get_grammar_bitmask(scheduler_output)
        self.adaptive_spec.think()
        return bitmask

    def update_draft_token_ids(self, draft_token_ids: Any) -> Any:
        """Drafts have arrived, and with them what the drafter showed."""
        engine: Any = super()
        self.adaptive_spec.drafted(draft_token_ids)
        return engine.update_draft_token_ids(draft_token_ids)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Read the results, then let vLLM process them."""
        engine: Any = super()
        self.adaptive_spec.read(scheduler_output, model_runner_output)
        outputs = engine.update_from_output(scheduler_output, model_runner_output)
        self.adaptive_spec.processed()
        return outputs

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        engine: Any = super()
        freed = engine._free_request(request, *args, **kwargs)
        self.adaptive_spec.freed(request.request_id)
        return freed

    def set_pause_state(self, pause_state: Any) -> None:
        """Sleep mode and reloads of weights pause the scheduler and resume it."""
        engine: Any = super()
        engine.set_pause_state(pause_state)
        self.adaptive_spec.paused()

    def shutdown(self) -> None:
        """Write what is buffered, take our hooks away, then shut down."""
        engine: Any = super()
        try:
            self.adaptive_spec.close()
            _DRIVERS.discard(self.adaptive_spec)
            if not _DRIVERS:  # another engine of this process may still need them
                control.uninstall()
                drafter_state.uninstall()
                varlen_graphs.uninstall()
        except Exception as error:
            LOG.warning("adaptive_spec: at shutdown: %s: %s", type(error).__name__, error)
        finally:
            engine.shutdown()


def attach(scheduler: Any) -> StepDriver:
    """Build controller and driver for a scheduler. Start-up: errors reach the operator."""
    vllm_config = scheduler.vllm_config
    config: Config = getattr(vllm_config.scheduler_config, ATTRIBUTE)
    graph_ladder.give_back_schedule(scheduler)
    found = detect(vllm_config)
    controller = support.controller_for(
        found, config, LOG, missing=found.missing, identity=lambda: identity_of(vllm_config)
    )
    control.install()
    if controller.capability.cold_off:
        drafter_state.install()
    lookup, second_source = _second_source(vllm_config, controller, found)
    advice = advice_on_kmax(vllm_config, found)
    LOG.info("%s", start_line(controller, found, advice, second_source))
    try:
        metrics: Metrics | None = Metrics(vllm_config, controller)
    except Exception as error:  # figures are no reason not to serve
        metrics = None
        LOG.warning("adaptive_spec: no figures: %s: %s", type(error).__name__, error)
    driver = StepDriver(scheduler, controller, metrics, lookup)
    _DRIVERS.add(driver)
    return driver


def _second_source(
    vllm_config: Any, controller: Controller, found: Support
) -> tuple[LookUp | None, str]:
    """Return the configured look-up, or None and the reason."""
    options = controller.config.second_source
    if options is None:
        return None, ""
    placement = lookup_placement(vllm_config, found)
    if isinstance(placement, str):
        return None, f"no ({placement})"
    try:
        of_scheduler = placement is Placement.SCHEDULER
        allowed = not (of_scheduler and controller.capability.sampled_drafts)
        lookup = LookUp(options, controller.counters.event, placement, allowed=allowed)
        return lookup, options.kind
    except ImportError as error:
        return None, f"no ({error})"


def start_line(
    controller: Controller, found: Support, advice: str = "", second_source: str = ""
) -> str:
    """Return the start line: what is steered, how, and what a larger Kmax would give."""
    return support.start_line(
        found,
        controller,
        details=(
            f"runner={found.runner}",
            f"graphs={found.graphs}",
            *([f"second_source={second_source}"] if second_source else []),
        ),
        remarks=[advice] if advice else [],
    )


def identity_of(vllm_config: Any) -> dict[str, object]:
    """Return the server and model that learned state belongs to. Read in EngineCore."""
    import vllm
    from vllm.platforms import current_platform

    model, speculation = vllm_config.model_config, vllm_config.speculative_config
    parallel, scheduling = vllm_config.parallel_config, vllm_config.scheduler_config
    drafter = speculation.draft_model_config
    return {
        "engine": f"vllm {vllm.__version__}",
        "device": current_platform.get_device_name(),
        "model": model.model,
        "revision": model.revision,
        "dtype": model.dtype,
        "quantization": model.quantization,
        "drafter": getattr(drafter, "model", None),
        "drafter_revision": getattr(drafter, "revision", None),
        "drafts": getattr(speculation, "draft_sample_method", None),
        "model_runner": "V2" if vllm_config.use_v2_model_runner else "V1",
        "graphs": vllm_config.compilation_config.cudagraph_mode,
        "asynchronous": scheduling.async_scheduling,
        "tensor_parallel": parallel.tensor_parallel_size,
        "pipeline_parallel": parallel.pipeline_parallel_size,
        "data_parallel": parallel.data_parallel_size,
    }
