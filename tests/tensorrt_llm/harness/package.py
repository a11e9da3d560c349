"""Modules of the TensorRT-LLM that is imported, installed or stand-in, hook first."""

import contextlib
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

_TORCH = "tensorrt_llm._torch."
MODULES = {
    "py_executor": _TORCH + "pyexecutor.py_executor",
    "cuda_graph_runner": _TORCH + "pyexecutor.cuda_graph_runner",
    "runner": _TORCH + "pyexecutor.engine.runners.decoder.runner",
    "resource_manager": _TORCH + "pyexecutor.resource_manager",
    "scheduler": _TORCH + "pyexecutor.scheduler",
    "sampler": _TORCH + "pyexecutor.sampler",
    "spec_sampler": _TORCH + "speculative.spec_sampler_base",
    "utils": _TORCH + "speculative.utils",
    "llm_args": "tensorrt_llm.llmapi.llm_args",
}


def load_hook() -> ModuleType:
    """Do what the `.pth` does at interpreter start."""
    adapter = importlib.util.find_spec("adaptive_spec.adapters.tensorrt_llm")
    assert adapter.origin is not None
    file = Path(adapter.origin).with_name("hook_file.py")
    spec = importlib.util.spec_from_file_location("_adaptive_spec_trtllm", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load() -> SimpleNamespace:
    """Import the package behind the hook, as an engine process does."""
    keep_off_the_gpu()
    load_hook()
    found: dict[str, Any] = {
        short: importlib.import_module(name) for short, name in MODULES.items()
    }
    request = importlib.import_module(_TORCH + "pyexecutor.llm_request")
    bindings = importlib.import_module("tensorrt_llm.bindings")
    batch_manager = importlib.import_module("tensorrt_llm.bindings.internal.batch_manager")
    found["LlmRequest"] = request.LlmRequest
    found["LlmRequestState"] = request.LlmRequestState
    found["SamplingConfig"] = bindings.SamplingConfig
    found["ReqIdsSet"] = batch_manager.ReqIdsSet
    found["lines"] = _lines_of(importlib.import_module("tensorrt_llm.logger").logger)
    return SimpleNamespace(**found)


def _lines_of(logger: Any) -> list[str]:
    """Keep what the logger is told."""
    lines: list[str] = []
    for level in ("info", "warning", "error"):
        own = getattr(logger, level)

        def say(*text: Any, _own: Any = own, **options: Any) -> None:
            lines.append(" ".join(map(str, text)))
            _own(*text, **options)

        setattr(logger, level, say)
    return lines


class Stream:
    """A stream on which nothing runs."""

    def wait_stream(self, other: Any) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


def keep_off_the_gpu() -> None:
    """Let `device="cuda"` mean the CPU, and streams do nothing, where torch is installed."""
    if importlib.util.find_spec("torch") is None:
        return
    torch = importlib.import_module("torch")
    if getattr(torch.cuda, "_adaptive_spec_harness", False):
        return
    torch.cuda._adaptive_spec_harness = True
    stream = Stream()
    torch.cuda.set_device = lambda device: None
    torch.cuda.current_stream = lambda device=None: stream
    torch.cuda.Stream = Stream
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    torch.cuda.synchronize = lambda device=None: None
    for holder, name in (
        (torch.Tensor, "to"),
        *((torch, name) for name in ("zeros", "empty", "full", "tensor", "as_tensor", "arange")),
    ):
        setattr(holder, name, _on_cpu(getattr(holder, name)))


def _on_cpu(own: Any) -> Any:
    def called(*args: Any, **options: Any) -> Any:
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        options.pop("pin_memory", None)
        return own(*args, **options)

    return called
