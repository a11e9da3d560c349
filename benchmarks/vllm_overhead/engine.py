"""A full batch in one engine, whose steps the arms take in turn."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.vllm_cpu.engine import MAX_MODEL_LEN, MIXED, BenchEngine, Load, Setup
from benchmarks.vllm_cpu.errors import BenchmarkError

from .own_code import SCHEDULER_SIDE, WORKER_SIDE, Removable, Stopwatch
from .ratios import ADAPTER, CONFIDENCE, DECIDING, PLAIN, Block

ARMS = (PLAIN, ADAPTER, CONFIDENCE, DECIDING)
UNCOUNTED_STEPS = 1
"""Of a block: what the arm before has left to do is done in the first."""
FIRST_STEPS = 4
"""Of a wave of requests: prompts, and drafts of the first round."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured.

    Attributes:
        models: folder of the bench models.
        k: the fixed K, and the engine's num_speculative_tokens.
        draft_sampling: vLLM's `draft_sample_method`.
        batch: requests that decode in every step.
        cycles: rounds of all arms.
        steps: counted steps of a block.
        temperature: of sampling.
        seed: of prompts and of the order of the arms.
    """

    models: str
    k: int
    draft_sampling: str
    batch: int
    cycles: int
    steps: int
    temperature: float
    seed: int

    @property
    def title(self) -> str:
        return f"B = {self.batch}, K = {self.k}, {self.draft_sampling} drafts"


class OverheadEngine(BenchEngine):
    """A bench engine with the plugin, which can be taken off it."""

    def __init__(self, condition: Condition) -> None:
        adaptive = {"policy": "static", "fail_open": {"max_decision_ms": 60_000}}
        super().__init__(
            Setup(
                models=condition.models,
                draft="draft",
                k=condition.k,
                draft_sampling=condition.draft_sampling,
                adaptive=adaptive,
            )
        )
        self._condition = condition
        # The counter that BenchEngine has put there holds our method, whatever the class is.
        del self._scheduler.schedule
        core = self._engine.engine_core.engine_core
        worker = core.model_executor.driver_worker.worker
        runner = worker.model_runner
        drafter = runner.drafter
        inside = (worker, runner, drafter, drafter.model)
        bases = {base for thing in inside for base in type(thing).__mro__}
        self._worker = Removable(inside, ())
        self._adapter = Removable((self._scheduler,), sorted(bases - {object}, key=str))
        if not self._worker.names or not self._adapter.names:
            raise BenchmarkError("the plugin is not in the engine: nothing to compare with")
        signals = self._scheduler.adaptive_spec._signals
        signals.wanted = lambda *_: True  # also where all is verified: the worst case
        self._static = self.controller.policy
        self.use_policy("goodput", {}, fresh=False)
        self._goodput = self.controller.policy
        self._stopwatch = Stopwatch()

    @property
    def hooks(self) -> list[str]:
        """What is taken off for the arm without us."""
        return [*self._adapter.names, *self._worker.names]

    def measure(self) -> Iterator[dict[str, Block]]:
        """Cycles, as many as the condition asks for."""
        order = random.Random(self._condition.seed)
        left = self._condition.cycles
        with self._stopwatch.watching((*SCHEDULER_SIDE, *WORKER_SIDE)):
            for wave in range(100 * left):
                live = self._begin(wave)
                while left and (cycle := self._cycle(order, live)) is not None:
                    left -= 1
                    yield cycle
                self._use(ADAPTER)
                self._abandon(list(live))
                if not left:
                    return
        raise BenchmarkError("requests end before all arms have had their steps: lower --steps")

    def _begin(self, wave: int) -> dict[str, bool]:
        """A full batch of new requests, past their prompts."""
        condition = self._condition
        self._use(CONFIDENCE)
        load = Load(
            workload=MIXED,
            temperature=condition.temperature,
            concurrency=condition.batch,
            seed=condition.seed + wave,
            seconds=0.0,
        )
        live: dict[str, bool] = {}
        for job in islice(load.jobs(), condition.batch):
            self._send(job, MAX_MODEL_LEN, load, live)
        gc.collect()
        for _ in range(FIRST_STEPS):
            self._engine.step()
        return live

    def _cycle(self, order: random.Random, live: dict[str, bool]) -> dict[str, Block] | None:
        """A block of each arm; None if requests may end meanwhile."""
        condition = self._condition
        block = condition.steps + UNCOUNTED_STEPS
        tokens = len(ARMS) * block * (condition.k + 1)
        requests = list(self._scheduler.requests.values())
        if len(requests) < len(live) or any(
            request.num_tokens + tokens >= MAX_MODEL_LEN for request in requests
        ):
            return None
        return {arm: self._block(arm) for arm in order.sample(ARMS, len(ARMS))}

    def _block(self, arm: str) -> Block:
        self._use(arm)
        for _ in range(UNCOUNTED_STEPS):
            self._engine.step()
        found: list[Block] = []
        for _ in range(self._condition.steps):
            self._stopwatch.reset()
            began, processor = time.perf_counter(), time.process_time()
            self._engine.step()
            used = time.process_time() - processor
            seconds = time.perf_counter() - began
            parts = dict(self._stopwatch.seconds)
            own_processor = sum(self._stopwatch.processor.values())
            found.append(Block(seconds, used, sum(parts.values()), own_processor, parts))
        names = {name for block in found for name in block.parts}
        return Block(
            seconds=median(block.seconds for block in found),
            processor=median(block.processor for block in found),
            own=median(block.own for block in found),
            own_processor=median(block.own_processor for block in found),
            parts={n: median(block.parts.get(n, 0.0) for block in found) for n in names},
        )

    def _use(self, arm: str) -> None:
        if arm == PLAIN:
            self._adapter.take_off()
        else:
            self._adapter.put_back()
        if arm in (PLAIN, ADAPTER):
            self._worker.take_off()
        else:
            self._worker.put_back()
        controller = self.controller
        controller.policy = self._goodput if arm == DECIDING else self._static
        controller.mode = "shadow" if arm == DECIDING else "on"


def measure(condition: Condition, log: Path) -> tuple[list[dict[str, Block]], list[str]]:
    """All cycles of a condition, and what was taken off; in a process of its own."""
    engine = OverheadEngine(condition)
    cycles = []
    with ExitStack() as stack:
        file = stack.enter_context(log.open("w", encoding="utf-8"))
        for cycle in engine.measure():
            cycles.append(cycle)
            shown = {arm: round(1e3 * block.seconds, 2) for arm, block in cycle.items()}
            print(len(cycles), shown, file=file, flush=True)
    faults = engine.status()["fail_opens"]
    engine.close()
    if faults:
        raise BenchmarkError(f"adaptive-spec failed meanwhile: {faults}")
    return cycles, engine.hooks
