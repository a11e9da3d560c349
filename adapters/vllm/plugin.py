"""Entry point of `vllm.general_plugins`: runs in every vLLM process, before anything is built.

vLLM calls `register` in the API server, EngineCore and each worker, possibly more than once, and an
exception here would stop the server. The module imports nothing heavy, and `register` does one
thing, once: it wraps `EngineArgs.create_engine_config`, where the configuration is first known.
Without our key and without ADAPTIVE_SPEC_CONFIG, the wrapper calls vLLM's function and only warns
of names that look like ours; otherwise the gate (`gate.py`) decides.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys

from adaptive_spec.adapters.vllm import KEY

TYPE_CHECKING = False  # typing takes longer to import than everything else here
if TYPE_CHECKING:
    from typing import Any

_MARK = "_adaptive_spec_gate"
_ENGINE_ARGS_MODULE = "vllm.engine.arg_utils"


def register() -> None:
    """Wrap the function in processes that create an engine configuration."""
    if not _creates_configurations():
        return
    try:
        _wrap()
    except Exception as error:
        import logging

        # Without a gate nothing can be enabled; vLLM runs as if we were not installed.
        logging.getLogger("vllm.adaptive_spec").error(
            "adaptive_spec: cannot attach to this vLLM (%s: %s), nothing is switched on; "
            "run `adaptive-spec doctor`",
            type(error).__name__,
            error,
        )


def _wrap() -> None:
    from vllm.engine.arg_utils import EngineArgs

    original = EngineArgs.create_engine_config
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        _warn_of_mistakes(self.additional_config)
        if not _is_asked_for(self.additional_config):
            return original(self, *args, **kwargs)
        from adaptive_spec.adapters.vllm.gate import gated_config

        return gated_config(original, self, *args, **kwargs)

    setattr(create_engine_config, _MARK, True)
    EngineArgs.create_engine_config = create_engine_config


def _is_asked_for(additional_config: object) -> bool:
    ours = isinstance(additional_config, dict) and KEY in additional_config
    return ours or bool(os.environ.get("ADAPTIVE_SPEC_CONFIG"))


def _warn_of_mistakes(additional_config: object) -> None:
    """Log keys and variables that look like ours and switch nothing on."""
    keys = {*additional_config} if isinstance(additional_config, dict) else set()
    names = " ".join(map(str, (*keys, *os.environ))).lower()
    if not ({"mode", "policy"} & keys or "adapt" in names or "spec" in names):
        return
    with contextlib.suppress(Exception):
        import logging

        from adaptive_spec.config import mistaken_names

        for sentence in mistaken_names(additional_config):
            logging.getLogger("vllm.adaptive_spec").warning("adaptive_spec: %s", sentence)


def _creates_configurations() -> bool:
    """Return whether this process resolves configurations, unlike workers and EngineCore."""
    if _ENGINE_ARGS_MODULE in sys.modules:
        return True
    import multiprocessing

    return multiprocessing.parent_process() is None
