"""A real vLLM engine in this process, on the clock of a modelled device.

Nothing of vLLM is replaced. `schedule` and `update_from_output` of its scheduler are wrapped to
read what a step runs, and the drafter's passes are counted where they are executed: a planned pass
that did not run costs nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adaptive_spec.errors import ConfigError
from benchmarks.bench_pair.prompts import Job

from ..arms import Arm
from ..clock import Recorder
from ..device import Device
from ..scripted_vllm import schedule_ahead_on_cpu
from ..setup import (
    KMAX,
    MAX_MODEL_LEN,
    SLOW_DECISION_MS,
    V1,
    V1_ASYNC,
    Setup,
    environment,
)
from ..vllm_steps import let_decide, record_steps, use_table
from .traffic import Answer

MODELS = {"draft_model": "draft", "draft_poor": "draft_poor"}
"""Folder of the drafter's weights by method; `draft_poor` is a draft model that is rarely right."""


class InProcess:
    """A vLLM engine whose core runs in this process, and which records its steps."""

    def __init__(self, arguments: dict[str, Any], recorder: Recorder) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.llm_engine import LLMEngine

        if current_platform.is_cpu():
            from benchmarks.bench_pair.vllm_cpu_sampling_fix import apply

            apply()
        self.recorder = recorder
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        self._core: Any = self._engine.engine_core.engine_core
        self.scheduler: Any = self._core.scheduler
        record_steps(self.scheduler, recorder)

    def tokens_of(self, prompts: list[str]) -> list[list[int]]:
        """Return the tokens of prompts."""
        tokenizer = self._engine.get_tokenizer()
        return [list(tokenizer.encode(prompt)) for prompt in prompts]

    def send(self, name: str, prompt: str | list[int], **sampling: Any) -> str:
        """Send a request, as text or as tokens; return its name. Its answer has no early end."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            **sampling,
        )
        key = "prompt" if isinstance(prompt, str) else "prompt_token_ids"
        self._engine.add_request(name, {key: prompt}, parameters)
        return name

    def drain(self) -> None:
        """Finish a step that was scheduled ahead, for requests that have all ended."""
        while self._core.batch_queue:
            self._engine.step()

    def close(self) -> None:
        """Shut down in order."""
        self._engine.engine_core.shutdown()


class VllmEngine(InProcess):
    """One on the clock of a modelled device."""

    def __init__(self, setup: Setup) -> None:
        missing = {name for name in environment(V1) if name not in os.environ}
        assert not missing, f"set before the process starts: {sorted(missing)}"
        ahead = setup.engine == V1_ASYNC
        if ahead:
            schedule_ahead_on_cpu()
        self._setup = setup
        super().__init__(_arguments(setup), Recorder())
        if (self._core.batch_queue is not None) != ahead:
            raise ConfigError(f"{setup.engine}: the engine schedules ahead: {not ahead}")
        runner = self._core.model_executor.driver_worker.worker.model_runner
        runner.drafter.model.register_forward_pre_hook(lambda *_: self.recorder.drafter_ran())

    @property
    def controller(self) -> Any:
        """Our plugin's controller."""
        return self.scheduler.adaptive_spec.controller

    def use(self, arm: Arm, device: Device) -> None:
        """Let an arm decide, with everything as at a server's start: vLLM's own K, or a policy."""
        most, table = self._setup.most_requests, arm.table
        if table is None and arm.k not in (KMAX, None):
            table = [(1, most, max(arm.k, 0))]
        use_table(self.scheduler, table, most)
        self.recorder.use(device.charge(self._setup.method))
        from adaptive_spec.adapters.vllm import lookup

        lookup._MOST_SECONDS = math.inf  # computing time of this machine is not the device's
        let_decide(self.scheduler, arm, device.capability, self.recorder.clock)

    def status(self) -> dict[str, Any]:
        """Our plugin's counters since it was attached."""
        found: dict[str, Any] = self.controller.status()
        return found

    def submit(self, job: Job, temperature: float, hints: dict[str, Any] | None = None) -> None:
        """Send a request, with `vllm_xargs`."""
        self.send(
            str(job.number),
            job.prompt,
            temperature=temperature,
            seed=job.number if temperature else None,
            max_tokens=job.max_tokens,
            extra_args=hints or None,
        )

    def step(self) -> Iterator[Answer]:
        """Let the engine do one step."""
        for output in self._engine.step():
            yield Answer(int(output.request_id), list(output.outputs[0].token_ids), output.finished)


def _arguments(setup: Setup) -> dict[str, Any]:
    models = Path(setup.models)
    speculative = {
        "method": "draft_model",
        "model": str(models / MODELS[setup.method]),
        "num_speculative_tokens": KMAX,
        "draft_sample_method": "greedy",
    }
    own = {
        "fail_open": {"max_decision_ms": SLOW_DECISION_MS},
        "audit": {"share": 0.0},  # an arm's figures are its own
        **setup.config,
    }
    return dict(
        model=str(models / "target"),
        dtype="float32",
        enforce_eager=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=setup.most_requests,
        enable_prefix_caching=False,
        seed=0,
        async_scheduling=setup.engine == V1_ASYNC,
        speculative_config=speculative,
        additional_config={"adaptive_spec": own},
    )
