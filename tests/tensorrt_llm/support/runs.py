"""Runs of the stand-in with the adapter in place, and what they recorded."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from adaptive_spec.controller.controller import Controller
from adaptive_spec.step import SpecPlan, StepContext, StepOutcome

KMAX = 5


class Traffic:
    """Requests that come, end, and now and then are cancelled; the same on every rank.

    Args:
        iterations: how long requests keep coming.
        seed: of arrivals, lengths and cancellations.
        rate: requests per iteration.
        skip: share of iterations a decoding request is left out of.
    """

    def __init__(
        self, stand_in: Any, iterations: int, seed: int, rate: float = 0.15, skip: float = 0.0
    ) -> None:
        self._request = stand_in.llm_request.LlmRequest
        self._iterations = iterations
        self._random = random.Random(seed)
        self._rate = rate
        self._skip = skip
        self.sent = 0

    def __call__(self, executor: Any) -> bool:
        chance = self._random
        if executor.iter_counter >= self._iterations:
            return False
        if chance.random() < self._rate and len(executor.waiting_queue) < 4:
            self.sent += 1
            executor.waiting_queue.append(
                self._request(
                    self.sent, chance.randint(1, 60), chance.randint(1, 50), chance.random()
                )
            )
        if executor.active_requests and chance.random() < 0.01:
            executor.cancel(chance.choice(executor.active_requests))
        return True

    def skip(self, request: Any) -> bool:
        return self._random.random() < self._skip


class Seam:
    """What crossed the seam of one controller."""

    def __init__(self) -> None:
        self.planned: dict[int, tuple[StepContext, SpecPlan]] = {}
        self.outcomes: dict[int, StepOutcome] = {}

    def steps(self) -> list[tuple[StepContext, SpecPlan, StepOutcome | None]]:
        return [(c, p, self.outcomes.get(step)) for step, (c, p) in self.planned.items()]


class Record(Seam):
    """Of all controllers while it is active; of one rank's with `of`."""

    def __init__(self, monkeypatch: Any) -> None:
        super().__init__()
        self._of_thread: defaultdict[int, Seam] = defaultdict(Seam)
        own_plan, own_observe = Controller.plan, Controller.observe

        def plan(controller: Controller, context: StepContext) -> SpecPlan:
            made = own_plan(controller, context)
            for seam in (self, self._of_thread[threading.get_ident()]):
                seam.planned[context.step] = (context, made)
            return made

        def observe(controller: Controller, outcome: StepOutcome) -> None:
            for seam in (self, self._of_thread[threading.get_ident()]):
                seam.outcomes[outcome.step] = outcome
            own_observe(controller, outcome)

        monkeypatch.setattr(Controller, "plan", plan)
        monkeypatch.setattr(Controller, "observe", observe)

    def of(self, executor: Any) -> Seam:
        return self._of_thread[executor.thread.ident]


def executor_of(stand_in: Any, traffic: Traffic, *, spec: Any = None, **options: Any) -> Any:
    """An executor with graphs captured, not started."""
    spec = spec or stand_in.interface.SpecConfig(KMAX, {8: KMAX})
    engine = stand_in.model_engine.PyTorchModelEngine(spec)
    engine.warmup()
    return stand_in.py_executor.PyExecutor(engine, traffic, skip=traffic.skip, **options)


def run(executor: Any) -> Any:
    """Start, wait for the end of traffic, raise what went wrong; returns the driver."""
    executor.start_worker()
    executor.wait()
    return executor._adaptive_spec


def run_ranks(
    stand_in: Any,
    seeds: list[int],
    *,
    iterations: int = 1500,
    prepare: Callable[[Any, int], None] | None = None,
    **options: Any,
) -> list[Any]:
    """One executor per rank, each in its thread; raises the first rank's error."""
    world = stand_in.communicator.World(len(seeds))
    executors = []
    for rank, seed in enumerate(seeds):
        dist = stand_in.communicator.Distributed(world, rank)
        traffic = Traffic(stand_in, iterations, seed)
        executors.append(executor_of(stand_in, traffic, dist=dist, **options))
    for executor in executors:
        executor.start_worker()
    for rank, executor in enumerate(executors):
        if prepare is not None:
            prepare(executor, rank)
    errors = []
    for executor in executors:
        try:
            executor.wait()
        except Exception as error:
            errors.append(error)
    told = [error for error in errors if "waits at" not in str(error)] or errors
    if told:
        raise told[0]
    return executors


def check_labels(record: Seam, log: list[dict[str, tuple[int, int]]]) -> int:
    """Every label is about drafts that were really made; returns how many labels there were.

    Args:
        record: of a run on one rank.
        log: of its model engine, one entry per forward pass.
    """
    count = 0
    for step, outcome in record.outcomes.items():
        context, _ = record.planned[step]
        truth = log[step - 1]
        row_of = {int(slot): row for row, slot in enumerate(context.slots)}
        for slot, verified, accepted in zip(
            outcome.slots.tolist(),
            outcome.verified.tolist(),
            outcome.accepted.tolist(),
            strict=True,
        ):
            name = context.request_ids[row_of[slot]]
            real, really_accepted = truth[name]
            assert verified <= real, f"step {step}, request {name}: filler counted as drafts"
            assert accepted == min(really_accepted, verified), (
                f"step {step}, request {name}: {accepted} of {verified} accepted, "
                f"really {really_accepted} of {real}"
            )
            count += 1
    return count
