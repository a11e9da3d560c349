"""One vLLM engine, and the requests under way in it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from .in_core import mix_into_cpu_worker
from .steps import Steps

CONTROL = "adaptive_spec_control"
"""Method of EngineCore that our plugin adds."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine is configured.

    Attributes:
        arguments: of vLLM's EngineArgs, on a GPU with this package's worker extension.
        cpu: vLLM runs on a CPU, where temperatures above 0 need a repair of vLLM.
    """

    arguments: dict[str, Any]
    cpu: bool = False


class Engine:
    """A vLLM engine.

    Attributes:
        steps: what the finished steps reported.
        live: requests under way: kind of the prompt by name.
        encode: token ids of a prompt's text.
    """

    def __init__(self, setup: Setup) -> None:
        if setup.cpu:
            from benchmarks.bench_pair.vllm_cpu_sampling_fix import apply

            apply()
            mix_into_cpu_worker()
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine
        from vllm.v1.metrics.loggers import StatLoggerBase

        steps = self.steps = Steps()

        class StepRecorder(StatLoggerBase):  # type: ignore[misc]
            def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
                pass

            def record(self, scheduler_stats: Any, *args: Any, **kwargs: Any) -> None:
                if scheduler_stats is not None:
                    steps.add(time.monotonic(), scheduler_stats)

            def log_engine_initialized(self) -> None:
                pass

        began = time.monotonic()
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(**setup.arguments), stat_loggers=[StepRecorder]
        )
        self._start_seconds = time.monotonic() - began
        self._core: Any = self._engine.engine_core
        self.encode = _tokenizer(setup.arguments["model"])
        self._number = itertools.count()
        self.live: dict[str, str] = {}

    def facts(self) -> dict[str, Any]:
        """What vLLM resolved, the seconds it took to start and the memory it holds (GiB)."""
        config = self._engine.vllm_config
        compilation = config.compilation_config
        return {
            "start_seconds": round(self._start_seconds, 1),
            "runner": "V2" if config.use_v2_model_runner else "V1",
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "cudagraph_mode": str(compilation.cudagraph_mode).rsplit(".", 1)[-1],
            "capture_sizes": list(compilation.cudagraph_capture_sizes or ()),
            "memory_gib": self.rpc("bench_memory"),
        }

    def rpc(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker and of its extension `in_core`."""
        return self._engine.collective_rpc(method, args=arguments)[0]

    def control(self, request: dict[str, Any] | None) -> dict[str, Any]:
        """Our run-time switch; without a request, the status. Raises RuntimeError if refused."""
        if hasattr(self._core, "call_utility"):
            answer: dict[str, Any] = self._core.call_utility(CONTROL, request)
        else:
            answer = getattr(self._core.engine_core, CONTROL)(request)
        if "error" in answer:
            raise RuntimeError(f"adaptive_spec refuses {request}: {answer['error']}")
        return answer

    def send(self, kind: str, prompt: list[int], **sampling: Any) -> str:
        """Add a request and return its name. Answers have no early end."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            **sampling,
        )
        name = f"{kind}-{next(self._number)}"
        self.live[name] = kind
        self._engine.add_request(name, {"prompt_token_ids": prompt}, parameters)
        return name

    def step(self) -> list[Any]:
        """Wait for results; vLLM's outputs of requests that are alive. The finished ones leave."""
        outputs = [each for each in self._engine.step() if each.request_id in self.live]
        for each in outputs:
            if each.finished:
                del self.live[each.request_id]
        return outputs

    def abandon(self) -> None:
        """Abort all requests and let the steps under way end."""
        self._engine.abort_request(list(self.live))
        self.live.clear()
        while self._engine.has_unfinished_requests():
            self._engine.step()
        time.sleep(0.05)


def _tokenizer(model: str) -> Callable[[str], list[int]]:
    from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]

    tokenizer: Any = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    return lambda text: tokenizer.encode(text).ids
