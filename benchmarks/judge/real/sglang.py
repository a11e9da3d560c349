"""A real SGLang scheduler in this process, on the clock of a modelled device.

Real: SGLang's `Scheduler` as its process builds it, with its queue, batching, KV pool and result
processing, its EAGLE and STANDALONE workers, its adaptive controller and parameters, and our
adapter on them by SGLang's own hooks. `step` does what a turn of its plain loop does. Not real:
SGLang's compiled operators, which `tests/sglang/stand_in` has in PyTorch; captured graphs; the
processes for text and HTTP, so that requests are put into the scheduler's queue.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo.traffic import Job

from ..arms import SGLANG_LIST, SGLANG_RULE, Arm
from ..clock import Recorder
from ..device import Device, Work
from .setup import KMAX, MAX_MODEL_LEN, SLOW_DECISION_MS, Setup
from .traffic import Answer

MOST_K = 7
"""Largest candidate of SGLang's default file."""
LAUNCH_K = 3
"""K that SGLang's rule begins with, its own default for EAGLE."""
_ALGORITHMS = {
    "draft_model": ("STANDALONE", "draft"),
    "draft_poor": ("STANDALONE", "draft_poor"),
    "eagle": ("EAGLE", "eagle"),
}


class SglangEngine:
    """SGLang's scheduler with everything that it builds, TP = 1, plain loop."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.recorder = Recorder()
        self._folder = tempfile.TemporaryDirectory()
        self.scheduler: Any = self._build(Path(self._folder.name))
        self._attached: Any = None
        if setup.method != "none":
            from adaptive_spec.adapters.sglang.attach import params_of

            self._params: Any = params_of(self.scheduler.draft_worker)
            self._count_passes(self.scheduler.draft_worker.draft_worker.draft_runner)

    def use(self, arm: Arm, device: Device) -> None:
        """Let an arm decide, with everything as at a server's start."""
        self.recorder.use(device.charge(self._setup.method))
        if self._setup.method == "none":
            return
        from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams

        from adaptive_spec.adapters.sglang import hooks
        from adaptive_spec.adapters.sglang.attach import attach
        from adaptive_spec.adapters.sglang.settings import Settings
        from adaptive_spec.config import parse_config

        if self._attached is not None:
            self._attached.driver.close()
        self._attached = self._params.driver = hooks.SHARED.attached = None
        self._params.own = AdaptiveSpeculativeParams(LAUNCH_K, self._candidates(arm))
        if not arm.policy:
            return
        config = {
            "fail_open": {"max_decision_ms": SLOW_DECISION_MS},
            "policy": arm.policy,
            "options": dict(arm.options),
        }
        settings = Settings(config=parse_config(config, source=arm.name))
        self._attached = attach(self.scheduler, settings, hooks.SHARED.source)
        self._attached.driver.clock = self.recorder.clock
        hooks.SHARED.attached = self._attached

    def forget_texts(self) -> None:
        """Nothing is copied from earlier requests."""

    def status(self) -> dict[str, Any]:
        """Our plugin's counters since it was attached; empty without it."""
        return {} if self._attached is None else self._attached.driver.controller.status()

    def tokens_of(self, prompts: list[str]) -> list[list[int]]:
        """Return the tokens of prompts."""
        return [self._tokenizer.encode(prompt).ids for prompt in prompts]

    def submit(self, job: Job, temperature: float) -> None:
        """Put a request into the scheduler's queue, as its request handler does."""
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.sampling.sampling_params import SamplingParams

        sampling = SamplingParams(
            temperature=temperature, max_new_tokens=job.max_tokens, ignore_eos=True
        )
        sampling.normalize(None)
        request = Req(
            rid=str(job.number),
            origin_input_text="",
            origin_input_ids=array("q", self.tokens_of([job.prompt])[0]),
            sampling_params=sampling,
            eos_token_ids=set(),
            vocab_size=self.scheduler.model_config.vocab_size,
        )
        self.scheduler._add_request_to_queue(request)

    def step(self) -> Iterator[Answer]:
        """Let the scheduler take one turn of its plain loop."""
        scheduler = self.scheduler
        scheduler.ingest_requests()
        plan = scheduler.get_next_batch_to_run(
            running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
        )
        scheduler.running_batch = plan.running_batch
        batch = plan.batch_to_run
        assert batch is not None, "requests wait, and nothing can run"
        requests = list(batch.reqs)
        before = [len(request.output_ids) for request in requests]  # none has ended yet
        work = work_of(batch)
        self.recorder.launched(0, work)
        result = scheduler.run_batch(batch)
        if work.requests and (nodes := getattr(result, "speculative_num_draft_tokens", None)):
            work.tokens *= nodes
            work.least_k = work.most_k = nodes - 1
        self.recorder.arrived(0)
        scheduler.process_batch_result(batch, result)
        scheduler.last_batch = batch
        for request, known in zip(requests, before, strict=True):
            tokens = list(request.output_ids_through_stop[known:])
            work.emitted += len(tokens)
            yield Answer(int(request.rid), tokens, bool(request.finished()))

    def drain(self) -> None:
        """Nothing is under way between two turns of the plain loop."""

    def close(self) -> None:
        """End this process: SGLang's threads would keep it."""
        self._folder.cleanup()
        os._exit(0)

    def _candidates(self, arm: Arm) -> str | None:
        """SGLang's file of candidates for an arm; None: its default."""
        if arm.name == SGLANG_RULE:
            return None
        adapts = arm.name == SGLANG_LIST or bool(arm.policy)
        wanted = list(range(KMAX + 1)) if adapts else [arm.k]
        path = Path(self._folder.name) / "candidates-of-arm.json"
        path.write_text(json.dumps({"1": {"candidate_steps": wanted}}), encoding="utf-8")
        return str(path)

    def _count_passes(self, drafter: Any) -> None:
        forward = drafter.forward

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.recorder.drafter_ran()
            return forward(*args, **kwargs)

        drafter.forward = counted

    def _build(self, folder: Path) -> Any:
        from serving import environment
        from sglang_models import build_models
        from tokenizers import Tokenizer

        models = {path.name: path for path in Path(self._setup.models).iterdir()}
        if self._setup.method == "eagle":
            models |= build_models(Path(self._setup.models))
        self._tokenizer: Any = Tokenizer.from_file(str(models["target"] / "tokenizer.json"))
        switch, candidates = folder / "switch.json", folder / "candidates.json"
        switch.write_text("{}", encoding="utf-8")
        every = {"1": {"candidate_steps": list(range(MOST_K + 1))}}
        candidates.write_text(json.dumps(every), encoding="utf-8")
        os.environ |= environment(
            config=switch if self._setup.method != "none" else None,
            SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION="4096",
        )
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.plugins import load_plugins
        from sglang.srt.runtime_context import SpawnRanks, publish
        from sglang.srt.server_args import PortArgs, ServerArgs

        load_plugins()
        arguments = ServerArgs(**self._arguments(models, candidates))
        ports = PortArgs.init_new(arguments)
        for address in (ports.detokenizer_ipc_name, ports.tokenizer_ipc_name):
            threading.Thread(target=_drain, args=(address,), daemon=True).start()
        ranks = SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0)
        publish(arguments, role="scheduler", ranks=ranks)
        return Scheduler(arguments, ports)

    def _arguments(self, models: dict[str, Path], candidates: Path) -> dict[str, Any]:
        arguments: dict[str, Any] = dict(
            model_path=str(models["target"]),
            device="cpu",
            dtype="float32",
            attention_backend="intel_amx",
            mem_fraction_static=0.4,
            context_length=MAX_MODEL_LEN,
            max_total_tokens=MAX_MODEL_LEN * self._setup.most_requests,
            max_running_requests=self._setup.most_requests,
            disable_cuda_graph=True,
            disable_overlap_schedule=True,
            disable_radix_cache=True,
            skip_tokenizer_init=True,
            random_seed=1,
            log_level="error",
        )
        if self._setup.method != "none":
            algorithm, folder = _ALGORITHMS[self._setup.method]
            adaptive = algorithm == "EAGLE"
            launch = LAUNCH_K if adaptive else MOST_K
            arguments |= dict(
                speculative_algorithm=algorithm,
                speculative_draft_model_path=str(models[folder]),
                speculative_num_steps=launch,
                speculative_num_draft_tokens=launch + 1,
                speculative_eagle_topk=1,
                speculative_adaptive=adaptive,
                speculative_adaptive_config=str(candidates),
            )
        return arguments


def work_of(batch: Any) -> Work:
    """Return what an SGLang ScheduleBatch runs, without its drafts and the drafter's passes."""
    work, size = Work(), len(batch.reqs)
    work.drafting = size
    if batch.forward_mode.is_decode():
        work.requests = work.tokens = size
        work.context = int(batch.seq_lens_cpu.sum())
        return work
    for tokens, before in zip(batch.extend_lens, batch.prefix_lens, strict=True):
        work.prefill += tokens
        work.prefill_context += tokens * before + tokens * (tokens - 1) // 2
    return work


def _drain(address: str) -> None:
    """Take what the scheduler sends, as a detokenizer would."""
    import zmq

    socket = zmq.Context.instance().socket(zmq.PULL)
    socket.bind(address)
    while True:
        socket.recv()
