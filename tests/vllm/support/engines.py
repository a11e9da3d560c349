"""One real vLLM engine in this process, driven step by step."""

import functools
import gc
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_WAIT_POLICY": "passive",
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # Asynchronous scheduling compiles a small kernel, which takes longer than it saves here.
    "TORCHDYNAMO_DISABLE": "1",
}
KMAX = 4
PATIENT = {"max_decision_ms": 60_000}
"""`fail_open`: on a busy machine a decision may be late; here it counts whether it was right."""
RANDOM: dict[str, Any] = {
    "policy": "switchable_policies:RandomPolicy",
    "seed": 5,
    "memory_guard": False,
    "fail_open": PATIENT,
}
"""K per request, and depth, change at every step."""
GOODPUT: dict[str, Any] = {"policy": "goodput", "fail_open": PATIENT}
STATIC = GOODPUT | {"policy": "static", "options": {"k": KMAX}}


def prepare_environment() -> None:
    """Before the first import of vLLM."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@dataclass
class Job:
    """A request: when it arrives and what it asks."""

    name: str
    prompt: str | list[int]
    arrives: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    abort_at: int | None = None
    """Step at which the client goes away."""
    lora: Any = None
    """vLLM's LoRARequest."""


@dataclass
class Answer:
    """What came back for one request."""

    tokens: list[tuple[int, ...]]
    logprobs: list[list[dict[int, float]]]
    reasons: list[str | None]
    text: list[str]
    metrics: list[Any]


def prepare_platform() -> None:
    """Test only: allow asynchronous scheduling on CPU, and several engines in one process.

    vLLM turns asynchronous scheduling off on CPU, and replaces its kernels at each engine's start,
    which fails when it meets its own replacements.
    """
    from vllm.platforms.cpu import CpuPlatform

    if hasattr(CpuPlatform, "_forced_async"):
        return
    replace_kernels = getattr(CpuPlatform, "register_triton_kernel_overrides", None)
    if replace_kernels is not None:  # vLLM 0.31 is the first that has it
        CpuPlatform.register_triton_kernel_overrides = classmethod(
            functools.cache(lambda cls: replace_kernels())
        )
    give_dispatchers_their_kernels()
    leave_imports_out_of_collections()
    original = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        original(cls, vllm_config)
        if CpuPlatform._forced_async:
            vllm_config.scheduler_config.async_scheduling = True

    CpuPlatform._forced_async = False
    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)


def leave_imports_out_of_collections() -> None:
    """Test only: freeze what vLLM's imports have made, and nothing later.

    vLLM collects garbage ten times per engine, each time half a second among those objects, and
    its own freezing of the heap ends with every engine.
    """
    from vllm.v1.engine import core

    if hasattr(core, "freeze_gc_heap"):
        core.freeze_gc_heap = lambda: None
    gc.collect()
    gc.freeze()
    gc.unfreeze = lambda: None


class ByPosition:
    """A kernel whose arguments have other names than its dispatcher's.

    Args:
        kernel: for a CPU.
        own: the dispatcher's, with the same arguments in the same order.
    """

    def __init__(self, kernel: Any, own: Callable[..., None]) -> None:
        self.arg_names = tuple(inspect.signature(own).parameters)
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda **given: self._kernel[grid](*map(given.get, self.arg_names))


def give_dispatchers_their_kernels() -> None:
    """Test only: let vLLM 0.30 speculate on a CPU.

    It replaces Triton's kernels under names that their dispatchers no longer read, so the first
    verified draft ends the engine. Other versions have no such dispatchers or no such names.
    """
    from vllm.utils import cpu_triton_utils
    from vllm.v1.sample import rejection_sampler
    from vllm.v1.spec_decode import utils

    for module in (rejection_sampler, utils):
        for name, dispatcher in vars(module).items():
            kernel = getattr(cpu_triton_utils, f"{name.removeprefix('_')}_kernel", None)
            if kernel is not None and inspect.isfunction(getattr(dispatcher, "kernel", None)):
                dispatcher.kernel = ByPosition(kernel, dispatcher.kernel)


class Engine:
    """An engine with small KV memory and a small token budget, so that it chunks and preempts."""

    def __init__(
        self,
        models: dict[str, Path],
        method: str | None = None,
        *,
        adaptive: dict[str, Any] | None = None,
        asynchronous: bool = False,
        speculation: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        prepare_environment()
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms.cpu import CpuPlatform
        from vllm.v1.engine.llm_engine import LLMEngine

        prepare_platform()
        CpuPlatform._forced_async = asynchronous
        arguments: dict[str, Any] = dict(
            model=str(models["target"]),
            dtype="float32",
            max_model_len=400,
            max_num_seqs=12,
            max_num_batched_tokens=96,
            enforce_eager=True,
            num_gpu_blocks_override=16,
            block_size=32,
            enable_prefix_caching=True,
            seed=0,
        )
        if method is not None:
            arguments["speculative_config"] = speculative_config(models, method) | (
                speculation or {}
            )
            if counts_drafts_per_request():
                arguments["per_request_spec_decode_metrics"] = "detailed"
        if adaptive is not None:
            arguments["additional_config"] = {"adaptive_spec": adaptive}
        self.engine = LLMEngine.from_engine_args(EngineArgs(**(arguments | options)))
        CpuPlatform._forced_async = False  # not for configurations that other tests make
        self.core = self.engine.engine_core.engine_core
        self.scheduler = self.core.scheduler
        self.runner = self.core.model_executor.driver_worker.worker.model_runner
        self.preemptions = 0
        self.steps = 0
        self.drafter_passes = 0
        self._count_preemptions()
        # Model runner V1 calls it drafter, V2 speculator.
        drafter = getattr(self.runner, "drafter", None) or getattr(self.runner, "speculator", None)
        model = getattr(drafter, "model", None)
        if model is not None:
            model.register_forward_hook(self._count_pass)

    @property
    def controller(self) -> Any:
        return self.scheduler.adaptive_spec.controller

    def run(
        self, jobs: Sequence[Job], each_step: Callable[[int], None] | None = None
    ) -> dict[str, Answer]:
        """Serve the jobs to the end; the answer of each."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        engine = self.engine
        pending = sorted(jobs, key=lambda job: job.arrives)
        leaving = [job for job in jobs if job.abort_at is not None]
        answers: dict[str, Answer] = {}
        step = 0
        while pending or engine.has_unfinished_requests():
            while pending and (pending[0].arrives <= step or not engine.has_unfinished_requests()):
                job = pending.pop(0)
                prompt: Any = (
                    {"prompt_token_ids": job.prompt}
                    if isinstance(job.prompt, list)
                    else {"prompt": job.prompt}
                )
                defaults: dict[str, Any] = dict(
                    temperature=0.0,
                    max_tokens=32,
                    ignore_eos=True,
                    output_kind=RequestOutputKind.FINAL_ONLY,
                )
                parameters = SamplingParams(**(defaults | job.options))
                engine.add_request(job.name, prompt, parameters, lora_request=job.lora)
            for job in [
                job for job in leaving if job.abort_at is not None and job.abort_at <= step
            ]:
                engine.abort_request([job.name])
                leaving.remove(job)
            for output in engine.step():
                answers[output.request_id] = answer_of(output)
            if each_step is not None:
                each_step(step)
            step += 1
        while self.core.batch_queue:  # a step scheduled ahead, whose requests have all ended
            engine.step()
        self.steps += step
        return answers

    def close(self) -> None:
        """Free everything, so that the next engine can be built in this process."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

        self.engine.engine_core.shutdown()
        del self.engine, self.core, self.scheduler, self.runner
        cleanup_dist_env_and_memory()
        gc.collect()

    def _count_preemptions(self) -> None:
        original = self.scheduler._preempt_request

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.preemptions += 1
            return original(*args, **kwargs)

        self.scheduler._preempt_request = counted

    def _count_pass(self, *_: Any) -> None:
        self.drafter_passes += 1


def check_same(answers: Mapping[str, Answer], expected: Mapping[str, Answer]) -> None:
    """Check that all requests are answered as expected but those whose clients leave."""
    for name, wanted in expected.items():
        if not name.startswith("leave-"):
            assert answers[name].tokens == wanted.tokens, name
            assert answers[name].reasons == wanted.reasons, name


def counts_drafts_per_request() -> bool:
    """Whether this vLLM has `--per-request-spec-decode-metrics`; 0.29 is the first."""
    from vllm.engine.arg_utils import EngineArgs

    return hasattr(EngineArgs, "per_request_spec_decode_metrics")


def speculative_config(models: dict[str, Path], method: str) -> dict[str, Any]:
    """vLLM's --speculative-config for a method; the head of `mtp` is in the target's folder."""
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": KMAX}
    if method == "draft_model":
        config["model"] = str(models["draft"])
    elif method in ("eagle", "eagle3"):
        config["model"] = str(models[method])
    elif method in ("ngram", "ngram_gpu"):
        config |= {"prompt_lookup_min": 1, "prompt_lookup_max": 4}
    return config


def answer_of(output: Any) -> Answer:
    """The comparable part of vLLM's RequestOutput."""
    samples = sorted(output.outputs, key=lambda sample: sample.index)
    return Answer(
        tokens=[tuple(sample.token_ids) for sample in samples],
        logprobs=[
            [{token: entry.logprob for token, entry in place.items()} for place in sample.logprobs]
            if sample.logprobs
            else []
            for sample in samples
        ],
        reasons=[sample.finish_reason for sample in samples],
        text=[sample.text for sample in samples],
        metrics=[getattr(sample, "spec_decode_metrics", None) for sample in samples],
    )
