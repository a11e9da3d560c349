"""Wrappers around upstream's functions, applied once after the import of their module.

The post-import hook calls `apply`. PATCHES.md lists each wrapped function with its reason. Every
wrapper calls upstream's function exactly once; exceptions of upstream pass, ours do not. The facts
of the installed source are checked before anything is wrapped.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from adaptive_spec.adapters.tensorrt_llm.contract import ONE_ENGINE, RESERVE, SOURCE
from adaptive_spec.adapters.tensorrt_llm.ladder import is_dynamic, lacks_room, ladder_of
from adaptive_spec.adapters.tensorrt_llm.start import attach
from adaptive_spec.adapters.tensorrt_llm.steps import StepDriver
from adaptive_spec.adapters.tensorrt_llm.switch import Switch, requested
from adaptive_spec.errors import AdaptiveSpecError, UnsupportedEngineError

ATTRIBUTE = "_adaptive_spec"
"""Name under which a driver is kept on its executor."""

RESOLVER = "get_draft_len_for_batch_size"

_MARK = "_adaptive_spec_patch"
_PACKAGE = "tensorrt_llm"
_here = threading.local()
"""What holds in this thread for the length of one call: ``k``, and ``resources`` of a warm-up."""


def apply(module: ModuleType) -> None:
    """Wrap the functions of this module if the environment enables the plugin.

    Raises ConfigError or UnsupportedEngineError, one line, at start-up.
    """
    switch = requested()
    if switch is None:
        return
    with _refusing():
        _patch(module, switch)


def _patch(module: ModuleType, switch: Switch) -> None:
    _require_supported()
    if hasattr(module, "PyExecutor"):
        _wrap_executor(module, switch)
    for cls in _classes_with(module, "_get_graphs_to_capture"):
        _wrap_graphs_to_capture(cls, switch, getattr(module, "logger", None))
    for cls in _classes_with(module, "_round_up_batch_size_with_draft_len"):
        _wrap_round_up(cls, switch)
    if module.__name__.endswith(".speculative.utils"):
        _wrap_resolver(module)


@functools.cache
def _require_supported() -> Mapping[str, str]:
    """Check the facts of the installed source, once.

    Returns the features that it lacks, and what is missing. Raises UnsupportedEngineError.
    """
    package = Path(next(iter(sys.modules[_PACKAGE].__path__)))
    return SOURCE.require([ONE_ENGINE], package).missing


def _wrap_executor(module: Any, switch: Switch) -> None:
    executor = module.PyExecutor

    def start_worker(own: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        # While memory is being estimated a throw-away executor runs: not that one.
        if not getattr(self, "is_warmup", False) and getattr(self, ATTRIBUTE, None) is None:
            with _refusing():
                setattr(self, ATTRIBUTE, attach(self, switch, module, own_k(self)))
        return own(self, *args, **kwargs)

    def run_batch(own: Callable[..., Any], self: Any, scheduled_batch: Any) -> Any:
        if not hasattr(self, ATTRIBUTE):
            late(self)
        driver: StepDriver | None = getattr(self, ATTRIBUTE, None)
        if driver is None:
            return own(self, scheduled_batch)
        with holding("k", driver.before(scheduled_batch)):
            result = own(self, scheduled_batch)
        driver.launched(scheduled_batch)
        return result

    def late(self: Any) -> None:
        """Attach to an executor that was started during warm-up and serves now.

        Single rank only: several ranks could not begin at the same iteration.
        """
        if getattr(self, "is_warmup", False) or getattr(self.dist, "tp_size", 1) > 1:
            return
        setattr(self, ATTRIBUTE, None)
        try:
            setattr(self, ATTRIBUTE, attach(self, switch, module, own_k(self)))
        except Exception as error:  # the loop runs: too late to refuse
            module.logger.warning(f"adaptive_spec: nothing is switched on: {error}")

    def update(
        own: Callable[..., Any], self: Any, sample_state: Any, *args: Any, **kwargs: Any
    ) -> Any:
        driver: StepDriver | None = getattr(self, ATTRIBUTE, None)
        reading = None if driver is None else driver.read(sample_state)
        result = own(self, sample_state, *args, **kwargs)
        if driver is not None:
            driver.apply_reading(reading)
        return result

    def shutdown(own: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return own(self, *args, **kwargs)
        finally:
            driver: StepDriver | None = getattr(self, ATTRIBUTE, None)
            if driver is not None:
                driver.close()

    _wrap(executor, "start_worker", start_worker)
    _wrap(executor, "shutdown", shutdown)
    _wrap(executor, "_handle_dynamic_draft_len", run_batch)
    _wrap(executor, "_update_requests", update)


def _wrap_resolver(module: Any) -> None:
    """Wrap the function with which upstream looks up K in each iteration."""

    def resolve(
        own: Callable[..., Any],
        draft_len_schedule: Any,
        batch_size: int,
        max_draft_len: int,
        *args: Any,
        **kwargs: Any,
    ) -> int:
        k = getattr(_here, "k", None)
        if k is None:
            return int(own(draft_len_schedule, batch_size, max_draft_len, *args, **kwargs))
        least = args[0] if args else kwargs.get("min_draft_len", 0)
        most = int(max_draft_len)
        if RESERVE in _require_supported():
            # More drafts than upstream's own could take a batch beyond its token budget.
            most = int(own(draft_len_schedule, batch_size, max_draft_len, *args, **kwargs))
        return max(int(least), min(int(k), most))

    _wrap(module, RESOLVER, resolve)


def _wrap_graphs_to_capture(cls: type[Any], switch: Switch, logger: Any) -> None:
    """Capture upstream's (batch size, K) pairs and the ladder at each batch size."""

    def warmup(
        own: Callable[..., Any], self: Any, resource_manager: Any, *args: Any, **kwargs: Any
    ) -> Any:
        with holding("resources", resource_manager):
            return own(self, resource_manager, *args, **kwargs)

    def graphs(
        own: Callable[..., Any], self: Any, cuda_graph_batch_sizes: Any, *args: Any, **kwargs: Any
    ) -> Any:
        found = own(self, cuda_graph_batch_sizes, *args, **kwargs)
        spec_config = setting(self, "spec_config")
        if setting(self, "is_draft_model") or switch.config.mode != "on":
            return found
        if not is_dynamic(spec_config):
            return found
        if getattr(setting(self, "llm_args"), "cache_transceiver_config", None) is not None:
            return found  # prefill and decode apart: nothing but upstream's own K will run
        ladder = ladder_of(spec_config, switch.ladder)
        resources = getattr(_here, "resources", None)
        most = int(setting(self, "max_batch_size") or max(cuda_graph_batch_sizes))
        if resources is not None and lacks_room(resources, most, ladder):
            ladder = ladder_of(spec_config, only_scheduled=True)
        # Largest first, as upstream wants them: smaller ones reuse the memory.
        pairs = {*map(tuple, found), *((b, k) for b in cuda_graph_batch_sizes for k in ladder)}
        if logger is not None and getattr(setting(self, "dist"), "tp_rank", 0) == 0:
            logger.info(
                f"adaptive_spec: {len(pairs)} CUDA graphs instead of {len(found)}, for each "
                "sampling variant, LoRA variant and sequence class, and "
                f"{len({k for _, k in pairs})} padding dummies, each with a KV block for good; "
                "TLLM_ADAPTIVE_SPEC_LADDER names fewer K"
            )
        return sorted(pairs, reverse=True)

    _wrap(cls, "_get_graphs_to_capture", graphs)
    if "warmup" in vars(cls):
        _wrap(cls, "warmup", warmup)


def _wrap_round_up(cls: type[Any], switch: Switch) -> None:
    """Pad to the next captured batch size at any K; upstream assumes K falls with batch size."""

    def round_up(own: Callable[..., Any], self: Any, batch_size: int, draft_len: int) -> Any:
        spec_config = setting(self, "spec_config")
        if switch.config.mode != "on" or not is_dynamic(spec_config):
            return own(self, batch_size, draft_len)
        if draft_len not in ladder_of(spec_config, switch.ladder):
            return own(self, batch_size, draft_len)
        return self._round_up_batch_size(batch_size)

    _wrap(cls, "_round_up_batch_size_with_draft_len", round_up)


def own_k(executor: Any) -> Callable[[int], int]:
    """Return upstream's own K as a function of the batch size."""
    utils = importlib.import_module(f"{_PACKAGE}._torch.speculative.utils")
    own = getattr(utils, RESOLVER)
    own = getattr(own, "__wrapped__", own)
    spec_config = getattr(executor.model_engine, "spec_config", None)

    declared = getattr(spec_config, "min_runtime_draft_len", None)
    least = () if declared is None else (int(declared),)

    def resolve(batch_size: int) -> int:
        assert spec_config is not None
        largest = int(spec_config.max_draft_len)
        return int(own(spec_config.draft_len_schedule, batch_size, largest, *least))

    return resolve


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn any error at start-up into one line with the remedy.

    Continuing without the plugin on one rank would leave the other ranks waiting.
    """
    try:
        yield
    except AdaptiveSpecError:
        raise
    except Exception as error:
        raise UnsupportedEngineError(
            f"adaptive_spec: cannot attach to this TensorRT-LLM ({type(error).__name__}: {error}); "
            "unset TLLM_ADAPTIVE_SPEC to run without"
        ) from error


@contextmanager
def holding(name: str, value: Any) -> Iterator[None]:
    """Tell the wrappers in this thread a value inside the block: a K of None is upstream's own."""
    before = getattr(_here, name, None)
    setattr(_here, name, value)
    try:
        yield
    finally:
        setattr(_here, name, before)


def setting(engine: Any, name: str) -> Any:
    """Return a setting of a model engine from any of its known places; None if absent."""
    context = getattr(engine, "_ctx", None)
    for holder in (engine, getattr(engine, "_config", None), getattr(context, "config", None)):
        if hasattr(holder, name):
            return getattr(holder, name)
    return None


def _wrap(holder: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a function by `wrapper(own, ...)`, once."""
    own = vars(holder)[name]
    if getattr(own, _MARK, False):
        return

    @functools.wraps(own)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(own, *args, **kwargs)

    setattr(wrapped, _MARK, True)
    setattr(holder, name, wrapped)


def _classes_with(module: ModuleType, method: str) -> list[type[Any]]:
    return [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__ and method in vars(cls)
    ]
