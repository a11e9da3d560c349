"""Entry point of `vllm.general_plugins`: runs in every vLLM process, before anything is built.

vLLM calls `register` in the API server, EngineCore and each worker, possibly more than once, and
an exception here would stop the server. So the module imports nothing heavy, the function is
idempotent, and it does one thing: it wraps `EngineArgs.create_engine_config`, where the
configuration is first known (see `gate`). Everything else is decided there.
"""

from __future__ import annotations

import logging
import sys

_ENGINE_ARGS_MODULE = "vllm.engine.arg_utils"


def register() -> None:
    """Install the configuration gate in processes that create an engine configuration."""
    if not _creates_configurations():
        return
    try:
        from adaptive_spec.adapters.vllm.gate import install

        install()
    except Exception as error:
        # Without a gate nothing can be enabled; vLLM runs as if we were not installed.
        logging.getLogger("vllm.adaptive_spec").error(
            "adaptive_spec: cannot attach to this vLLM (%s: %s), nothing is switched on; "
            "run `adaptive-spec doctor`",
            type(error).__name__,
            error,
        )


def _creates_configurations() -> bool:
    """Workers and EngineCore receive a finished configuration; there is nothing to wrap there."""
    if _ENGINE_ARGS_MODULE in sys.modules:
        return True
    import multiprocessing

    return multiprocessing.parent_process() is None
