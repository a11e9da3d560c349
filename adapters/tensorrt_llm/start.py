"""Start-up of one executor: capability, controller and start line."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from adaptive_spec.adapters.tensorrt_llm.agreement import Agreement
from adaptive_spec.adapters.tensorrt_llm.capability import detect
from adaptive_spec.adapters.tensorrt_llm.steps import StepDriver
from adaptive_spec.adapters.tensorrt_llm.switch import Switch
from adaptive_spec.config import mistaken_names
from adaptive_spec.engines.support import controller_for, start_line

LOG = logging.getLogger("adaptive_spec.tensorrt_llm")


def attach(
    executor: Any, switch: Switch, module: Any, engine_k: Callable[[int], int]
) -> StepDriver | None:
    """Build controller and driver for an executor; None where nothing can be decided.

    Args:
        executor: upstream's PyExecutor, built and not started.
        switch: the operator's settings.
        module: the module of PyExecutor.
        engine_k: upstream's own K by batch size.

    Raises ConfigError or PolicyError, one line, for the operator.
    """
    _forward_log_to(module.logger)
    agreement = Agreement(
        getattr(executor, "dist", None), bool(getattr(executor, "enable_attention_dp", False))
    )
    support = detect(executor, switch.ladder)
    if support.capability is None:
        if agreement.speaks:
            LOG.warning("adaptive_spec: nothing is switched on: %s", support.inert)
        return None
    config = switch.config
    if not agreement.decides:  # it learns nothing
        config = msgspec.structs.replace(config, state=None, state_directory=None)
    controller = controller_for(support, config, LOG, identity=lambda: identity_of(executor))
    if agreement.speaks:
        remarks = ["source-checked, never executed by us on a GPU", *mistaken_names({})]
        largest = int(executor.max_batch_size)
        zero = next((size for size in range(1, largest + 1) if engine_k(size) == 0), None)
        if zero is not None:
            remarks.append(
                f"K = 0 in batches of {zero} and more, as configured (draft_len_schedule, "
                "max_concurrency)"
            )
        if switch.config.control_file:
            remarks.append("`control_file` is not read with TensorRT-LLM")
        LOG.info(
            "%s",
            start_line(
                support, controller, details=[f"ranks={agreement.describe()}"], remarks=remarks
            ),
        )
    driver = StepDriver(
        executor,
        controller,
        agreement,
        engine_k=engine_k,
        complete=module.LlmRequestState.GENERATION_COMPLETE,
    )
    # Workers may end without a shutdown. Not the driver's method: that would keep the executor,
    # and with it GPU memory, to the end of the process.
    atexit.register(controller.close)
    return driver


def identity_of(executor: Any) -> dict[str, object]:
    """Return the server and model that learned state belongs to.

    Args:
        executor: upstream's PyExecutor, built.
    """
    import tensorrt_llm

    arguments, speculation = executor.model_engine.llm_args, executor.model_engine.spec_config
    cuda = getattr(sys.modules.get("torch"), "cuda", None)  # imported by upstream
    return {
        "engine": f"tensorrt_llm {tensorrt_llm.__version__}",
        "device": cuda.get_device_name() if cuda is not None and cuda.is_available() else "cpu",
        "model": arguments.model,
        "revision": getattr(arguments, "revision", None),
        "dtype": getattr(arguments, "dtype", None),
        "quantization": getattr(getattr(arguments, "quant_config", None), "quant_algo", None),
        "drafter": getattr(speculation, "speculative_model", None),
        "graphs": getattr(arguments, "cuda_graph_config", None) is not None,
        "asynchronous": not executor.disable_overlap_scheduler,
        "tensor_parallel": getattr(executor.dist, "tp_size", 1),
        "data_parallel": bool(executor.enable_attention_dp),
    }


class _Forward(logging.Handler):
    """Log handler that forwards to upstream's logger, which is not one of `logging`."""

    def __init__(self, sink: Any) -> None:
        super().__init__()
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        say = self._sink.warning if record.levelno >= logging.WARNING else self._sink.info
        say(record.getMessage())


def _forward_log_to(sink: Any) -> None:
    for handler in LOG.handlers[:]:
        if isinstance(handler, _Forward):
            LOG.removeHandler(handler)
    LOG.addHandler(_Forward(sink))
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
