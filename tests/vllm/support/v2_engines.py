"""Engines with model runner V2, in a process of their own where Triton interprets.

The process lives as long as the tests that use it and holds one engine at a time, as the shelf of
the other tests does. A call runs jobs in it and brings back what can be compared.
"""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from engines import KMAX, Answer, Engine, Job, prepare_environment
from scenarios import prompts
from v2_signals import Shown, watch

SMALL = {
    "max_model_len": 160,
    "num_gpu_blocks_override": 7,
    "max_num_seqs": 6,
    "max_num_batched_tokens": 48,
}
"""So that few requests are enough for chunked prefill and preemptions."""


def small_crowd() -> list[Job]:
    """Arrivals over time, a prompt in several chunks, more KV than there is."""
    jobs = [
        Job(f"text-{index}", prompt, 2 * index, {"max_tokens": 10 + 3 * index})
        for index, prompt in enumerate(prompts(6, 1))
    ]
    return [*jobs, Job("long", list(range(100, 190)), 3, {"max_tokens": 8})]


@dataclass
class Observed:
    """What a run did.

    Attributes:
        answers: by name of the job.
        runner: module of the model runner.
        scheduler: name of the scheduler's class.
        capability: level, whether depth follows, and why it only watches.
        verified: K_i of every request and step that decoded.
        depths: draft depths the scheduler asked for.
        ragged_steps: steps whose requests ran with different K.
        steps: steps that decoded.
        modes: steps by mode.
        drafter_passes: forward passes of the draft model per step, those of prompts included.
        preemptions: requests that lost their KV cache.
        accepted: drafts that were accepted.
        by_place: those of each step with all drafts, by request and tokens before.
        lookup: drafts of a second source, by what became of them.
        failures: faults of ours, by kind.
        left: requests we still hold something of.
    """

    answers: dict[str, Answer]
    runner: str
    scheduler: str
    capability: tuple[str, bool, str] = ("", False, "")
    verified: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()
    ragged_steps: int = 0
    steps: int = 0
    modes: dict[str, int] | None = None
    drafter_passes: float = 0.0
    preemptions: int = 0
    accepted: int = 0
    by_place: dict[tuple[str, int], int] | None = None
    lookup: dict[str, int] | None = None
    failures: dict[str, int] | None = None
    left: int = 0


class V2Engines:
    """Hands jobs to the process."""

    def __init__(self, models: dict[str, Path]) -> None:
        self._pool = ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=_prepare, initargs=(models,)
        )

    def run(
        self,
        jobs: Sequence[Job],
        method: str | None = None,
        policy: Any = None,
        stages: int = 1,
        **options: Any,
    ) -> Observed:
        """Serve the jobs with an engine of these options.

        Args:
            jobs: the requests.
            method: of speculation; none without.
            policy: that decides, in place of the configured one.
            stages: let requests take turns as in a pipeline of so many, with scheduling ahead.
            options: of `Engine`.
        """
        return self._pool.submit(_run, list(jobs), method, policy, stages, options).result()

    def watch(
        self, jobs: Sequence[Job], method: str, *, late: bool = False, **options: Any
    ) -> Shown:
        """Serve the jobs, and bring back what the drafter computed and what of it arrived.

        Args:
            jobs: the requests.
            method: of speculation.
            late: let the values go the way they go on a GPU.
            options: of `Engine`.
        """
        return self._pool.submit(_watch, list(jobs), method, late, options).result()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a module's function returns in the process."""
        return self._pool.submit(function, *arguments).result()

    def close(self) -> None:
        """End the process."""
        self._pool.submit(_shelve, None, None).result()
        self._pool.shutdown()


_MODELS: dict[str, Path] = {}
_SHELF: list[tuple[str, Engine]] = []


def _prepare(models: dict[str, Path]) -> None:
    import triton_interpreter

    triton_interpreter.prepare()
    prepare_environment()
    _MODELS.update(models)
    root = str(Path(__file__).resolve().parents[3])
    if root not in sys.path:
        sys.path.insert(0, root)


def _shelve(key: str | None, engine: Engine | None) -> None:
    while _SHELF:
        _SHELF.pop()[1].close()
    if key is not None and engine is not None:
        _SHELF.append((key, engine))


def _engine(method: str | None, options: dict[str, Any]) -> Engine:
    key = repr((method, sorted(options.items())))
    if not _SHELF or _SHELF[0][0] != key:
        _shelve(None, None)
        _shelve(key, Engine(_MODELS, method, **options))
    return _SHELF[0][1]


def _watch(jobs: list[Job], method: str, late: bool, options: dict[str, Any]) -> Shown:
    _shelve(None, None)  # an engine of its own: it is changed
    _shelve("watched", Engine(_MODELS, method, **options))
    return watch(_SHELF[0][1], jobs, late)


def _run(
    jobs: list[Job], method: str | None, policy: Any, stages: int, options: dict[str, Any]
) -> Observed:
    engine = _engine(method, options)
    engine.scheduler.decode_stagger = stages
    runner, scheduler = type(engine.runner).__module__, type(engine.scheduler).__name__
    if not hasattr(engine.scheduler, "adaptive_spec"):
        return Observed(engine.run(jobs), runner, scheduler)
    from recording import accepted_by_place, record_steps, stop_recording

    from adaptive_spec.adapters.vllm.capability import detect

    controller = engine.controller
    configured = controller.policy
    if policy is not None:
        controller.policy = policy
    before = (engine.drafter_passes, engine.preemptions)
    record = record_steps(engine)
    try:
        answers = engine.run(jobs)
    finally:
        controller.policy = configured
        stop_recording(engine)
    outcomes = [outcome for _, _, outcome in record if outcome is not None]
    support = detect(engine.scheduler.vllm_config)
    assert support.capability is not None
    return Observed(
        answers=answers,
        runner=runner,
        scheduler=scheduler,
        capability=(
            support.capability.level.name,
            support.capability.depth_follows,
            "; ".join(support.shadow),
        ),
        verified=tuple(k for outcome in outcomes for k in outcome.verified.tolist()),
        depths=tuple(outcome.draft_depth for outcome in outcomes),
        ragged_steps=sum(outcome.ragged for outcome in outcomes),
        steps=len(outcomes),
        modes=dict(controller.counters.modes),
        drafter_passes=(engine.drafter_passes - before[0]) / len(record),
        preemptions=engine.preemptions - before[1],
        accepted=sum(int(outcome.accepted.sum()) for outcome in outcomes),
        by_place=accepted_by_place(record, KMAX),
        lookup=dict(controller.counters.lookup),
        failures=dict(controller.counters.failures),
        left=len(controller.slots),
    )
