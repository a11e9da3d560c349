"""A real vLLM engine in this process, on the clock of the GPU, and the requests under way in it."""

from __future__ import annotations

import gc
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bench_pair.names import KINDS
from benchmarks.bench_pair.prompts import Job

from ..arms import Table
from ..clock import Recorder, VirtualClock
from ..device import Work
from ..own_code import EVERY_STEP, OURS, Stopwatch
from ..real.traffic import Answer, Load
from ..real.vllm import InProcess
from ..vllm_steps import use_table

OTHER = -1
"""In place of K: prompts in the step, or requests that differ in K."""


class Step(NamedTuple):
    """A finished step: when its results arrived (seconds), what it ran, its mode of CUDA graphs."""

    at: float
    work: Work
    graph: str

    @property
    def k(self) -> int:
        """The K of all its requests, or `OTHER`."""
        work = self.work
        uniform = work.requests and not work.prefill and work.least_k == work.most_k
        return work.most_k if uniform else OTHER


class WallClock(VirtualClock):
    """This machine's clock."""

    def __call__(self) -> float:
        """Return the time (seconds)."""
        return time.monotonic()

    def advance(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class WallRecorder(Recorder):
    """Steps as they end on this machine's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = WallClock()
        self.steps: list[Step] = []

    def arrived(self, key: int, results: Any = None) -> Work | None:
        """The results of a step arrived. None if it had no tokens."""
        work = self._under_way.pop(key, None)
        if work is not None:
            graph = getattr(results, "cudagraph_stats", None)
            mode = str(graph.runtime_mode).rsplit(".", 1)[-1] if graph else ""
            self.steps.append(Step(self.clock(), work, mode))
        return work


class Engine(InProcess):
    """One engine.

    Attributes:
        live: names of the requests under way.
    """

    recorder: WallRecorder

    def __init__(self, arguments: dict[str, Any]) -> None:
        began = time.monotonic()
        super().__init__(arguments, WallRecorder())
        self._start_seconds = time.monotonic() - began
        self._number = itertools.count()
        self.live: set[str] = set()

    def facts(self) -> dict[str, Any]:
        """Return the settings that vLLM resolved, its start-up seconds and its memory (GiB)."""
        import torch

        config = self._engine.vllm_config
        compilation = config.compilation_config
        memory = {}
        if torch.cuda.is_available():
            free, total = torch.cuda.mem_get_info()
            memory = {"held": torch.cuda.memory_reserved(), "free": free, "total": total}
        return {
            "start_seconds": round(self._start_seconds, 1),
            "runner": "V2" if config.use_v2_model_runner else "V1",
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "cudagraph_mode": str(compilation.cudagraph_mode).rsplit(".", 1)[-1],
            "capture_sizes": list(compilation.cudagraph_capture_sizes or ()),
            "memory_gib": {name: round(size / 2**30, 3) for name, size in memory.items()},
        }

    def control(self, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """Our run-time switch; without a request, the status. Raises RuntimeError if refused."""
        answer: dict[str, Any] = json.loads(self._core.adaptive_spec_control(request))
        if "error" in answer:
            raise RuntimeError(f"adaptive_spec refuses {request}: {answer['error']}")
        return answer

    def use_table(self, table: Table | None) -> None:
        """Let vLLM's own K follow a table."""
        use_table(self.scheduler, table, self._engine.vllm_config.scheduler_config.max_num_seqs)

    def send(self, name: str, prompt: str | list[int], **sampling: Any) -> str:
        """Send a request; return its name, which has become unique."""
        name = super().send(f"{name}-{next(self._number)}", prompt, **sampling)
        self.live.add(name)
        return name

    def submit(self, job: Job, temperature: float) -> None:
        """Send a job; `step` tells its number."""
        self.send(str(job.number), job.prompt, max_tokens=job.max_tokens, temperature=temperature)

    def outputs(self) -> list[Any]:
        """Wait for results; vLLM's outputs of requests that are alive. The finished ones leave."""
        found = [each for each in self._engine.step() if each.request_id in self.live]
        self.live -= {each.request_id for each in found if each.finished}
        return found

    def step(self) -> Iterator[Answer]:
        """The same of jobs."""
        for each in self.outputs():
            number = int(each.request_id.partition("-")[0])
            yield Answer(number, list(each.outputs[0].token_ids), each.finished)

    def abandon(self) -> None:
        """Abort all requests and let the steps under way end."""
        self._engine.abort_request(list(self.live))
        self.live.clear()
        while self._engine.has_unfinished_requests():
            self._engine.step()
        self.drain()


def serve(engine: Engine, load: Load, seconds: float, settle: float) -> dict[str, Any]:
    """Serve a load of endless requests; counts and step times of the measured part.

    Args:
        engine: idle.
        load: whose clients each send a request when their last one is answered.
        seconds: least measured time; the answer that completes a cycle of kinds ends it.
        settle: seconds before that, which are not counted.
    """
    gc.collect()
    gc.freeze()
    jobs, clients, recorder = load.jobs(), load.most_clients, engine.recorder
    for job in itertools.islice(jobs, clients):
        engine.submit(job, load.temperature)
    tokens = finished = 0
    ready, began, cycle = time.monotonic() + settle, 0.0, -1
    while True:
        for _, emitted, ended in engine.step():
            tokens += len(emitted)
            finished += ended
            if ended:
                engine.submit(next(jobs), load.temperature)
        now = time.monotonic()
        if not began:
            if now >= ready:
                tokens, finished, began = 0, 0, now
                recorder.steps.clear()
        elif now >= began + seconds:
            if cycle >= 0 and cycle != finished // len(KINDS):
                break
            cycle = finished // len(KINDS)
    engine.abandon()
    return {
        "seconds": round(now - began, 4),
        "tokens": tokens,
        "tokens_per_s": round(tokens / (now - began), 2),
        "finished": finished,
        **summary(recorder.steps, began),
    }


def own_time(engine: Engine, load: Load, seconds: float, settle: float) -> dict[str, Any]:
    """Serve a load and return the microseconds of our functions per step, by clock and by CPU.

    Timing each call takes time as well, so the step times are no measurement of our price.
    """
    with Stopwatch().watching(OURS) as watch:
        served = serve(engine, load, seconds, settle)
    steps = max(watch.calls[EVERY_STEP], 1)
    return {
        "own_us": round(1e6 * sum(watch.seconds.values()) / steps, 2),
        "own_cpu_us": round(1e6 * sum(watch.processor.values()) / steps, 2),
        "steps": steps,
        "mean_running": served.get("mean_running", 0.0),
        "functions_us": {
            name: round(1e6 * spent / steps, 2) for name, spent in watch.seconds.items()
        },
    }


def summary(steps: list[Step], since: float) -> dict[str, Any]:
    """Medians and counts of the steps whose results arrived after a moment."""
    pairs = [(a, b) for a, b in itertools.pairwise(steps) if b.at >= since]
    if not pairs:
        return {"steps": 0}
    seconds, kept = [b.at - a.at for a, b in pairs], [b for _, b in pairs]
    requests = sum(step.work.requests for step in kept)
    drafted = sum(step.work.tokens - step.work.requests for step in kept)
    graphs: dict[int, Counter[str]] = {}
    for step in kept:
        graphs.setdefault(step.k, Counter())[step.graph] += 1
    return {
        "steps": len(kept),
        "step_ms": [round(1e3 * float(q), 4) for q in np.percentile(seconds, (10, 50, 90))],
        "mean_k": round(drafted / max(requests, 1), 4),
        "mean_running": round(requests / len(kept), 2),
        "drafted": drafted,
        "graphs_by_k": graphs,
    }
