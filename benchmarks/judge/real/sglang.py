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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench_pair.prompts import Job

from ..arms import Arm
from ..clock import Recorder
from ..device import Device
from ..setup import KMAX, MAX_MODEL_LEN, Setup
from ..sglang_scheduler import (
    LAUNCH_K,
    build_scheduler,
    count_drafts,
    let_decide,
    next_batch,
    submit,
    work_of,
)
from .traffic import Answer

MOST_K = 7
"""Largest candidate of SGLang's default file."""
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
            self._count_passes(self.scheduler.draft_worker.draft_worker.draft_runner)

    def use(self, arm: Arm, device: Device) -> None:
        """Let an arm decide, with everything as at a server's start."""
        self.recorder.use(device.charge(self._setup.method))
        if self._setup.method != "none":
            folder = Path(self._folder.name)
            self._attached = let_decide(self.scheduler, arm, KMAX, folder, self.recorder.clock)

    def status(self) -> dict[str, Any]:
        """Our plugin's counters since it was attached; empty without it."""
        return {} if self._attached is None else self._attached.driver.controller.status()

    def tokens_of(self, prompts: list[str]) -> list[list[int]]:
        """Return the tokens of prompts."""
        return [self._tokenizer.encode(prompt).ids for prompt in prompts]

    def submit(self, job: Job, temperature: float) -> None:
        """Put a request into the scheduler's queue, as its request handler does."""
        tokens = self.tokens_of([job.prompt])[0]
        sampling = {"temperature": temperature, "max_new_tokens": job.max_tokens}
        submit(self.scheduler, str(job.number), tokens, ignore_eos=True, **sampling)

    def step(self) -> Iterator[Answer]:
        """Let the scheduler take one turn of its plain loop."""
        scheduler = self.scheduler
        batch = next_batch(scheduler)
        assert batch is not None, "requests wait, and nothing can run"
        requests = list(batch.reqs)
        before = [len(request.output_ids) for request in requests]  # none has ended yet
        work = work_of(batch)
        self.recorder.launched(0, work)
        result = scheduler.run_batch(batch)
        count_drafts(work, result)
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

    def _count_passes(self, drafter: Any) -> None:
        forward = drafter.forward

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.recorder.drafter_ran()
            return forward(*args, **kwargs)

        drafter.forward = counted

    def _build(self, folder: Path) -> Any:
        from tokenizers import Tokenizer

        models = {path.name: path for path in Path(self._setup.models).iterdir()}
        if self._setup.method == "eagle":
            from sglang_models import build_models

            models |= build_models(Path(self._setup.models))
        self._tokenizer: Any = Tokenizer.from_file(str(models["target"] / "tokenizer.json"))
        candidates = folder / "candidates.json"
        every = {"1": {"candidate_steps": list(range(MOST_K + 1))}}
        candidates.write_text(json.dumps(every), encoding="utf-8")
        hooked = self._setup.method != "none"
        return build_scheduler(self._arguments(models, candidates), folder, hooked=hooked)

    def _arguments(self, models: dict[str, Path], candidates: Path) -> dict[str, Any]:
        arguments: dict[str, Any] = dict(
            model_path=str(models["target"]),
            context_length=MAX_MODEL_LEN,
            max_total_tokens=MAX_MODEL_LEN * self._setup.most_requests,
            max_running_requests=self._setup.most_requests,
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
