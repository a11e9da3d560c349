"""One run of the stages: its engines, its results, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from adaptive_spec.adapters.vllm.graph_ladder import rungs

from .arms import Arm, arm, tuned_schedule
from .fleet import EngineError, Fleet
from .load import Load
from .results import Results
from .setups import NONE, Machine


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    Attributes:
        method: vLLM's name of the drafting method.
        loads: numbers of clients.
        ks: static K.
        repeats: of every cell.
        temperatures: of sampling.
        cell_seconds: least measured time of a cell.
        output_tokens: length of an answer.
        answers: greedy answers compared.
        batches, contexts: of the timed decode steps.
        prompts: lengths of the timed prompts.
        steps: counted for each setting.
    """

    method: str
    loads: tuple[int, ...]
    ks: tuple[int, ...]
    repeats: int
    temperatures: tuple[float, ...]
    cell_seconds: float
    output_tokens: int
    answers: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    prompts: tuple[int, ...]
    steps: int


class Bench:
    """Measures cells and keeps what they gave."""

    def __init__(
        self, fleet: Fleet, results: Results, extent: Extent, machine: Machine, deadline: float
    ) -> None:
        self.fleet, self.results, self.extent = fleet, results, extent
        self.machine, self._deadline = machine, deadline

    @property
    def over(self) -> bool:
        """Is the time up? No cell is begun then."""
        return time.monotonic() > self._deadline

    @property
    def rungs(self) -> tuple[int, ...]:
        """K of the ladder that has full graphs on a GPU."""
        return rungs(self.machine.kmax, (), most=self.machine.max_num_seqs)

    def missing(self, keys: Sequence[str]) -> bool:
        """Is one of these results to be measured yet, and is there time?"""
        return not self.over and any(key not in self.results for key in keys)

    def use(self, *keys: str) -> None:
        """Have these engines up; keep the facts of those that start, and why others don't."""
        for key, facts in self.fleet.use(keys).items():
            self.results.add(f"engine/{key}", facts)
            print(f"{key}: {facts}", flush=True)
        for key in keys:
            if key in self.fleet.failed and not self.fleet.has(key):
                self.fail(f"engine/{key}", self.fleet.failed[key])

    @property
    def ours(self) -> str:
        """The engine with adaptive-spec: with varlen graphs, or the ladder's if those failed."""
        found = f"{self.extent.method}-ours"
        return f"{self.extent.method}-ladder" if found in self.fleet.failed else found

    @property
    def steered_arm(self) -> str:
        """The arm of `ours`."""
        return self.ours.rpartition("-")[2]

    def use_sweep(self) -> None:
        """Have the sweep's engines up: no speculation, vLLM's table, adaptive-spec.

        Raises EngineError without the last: the others alone are not worth the time.
        """
        vllm = f"{self.extent.method}-vllm"
        self.use(NONE, vllm, self.ours)
        if not self.fleet.has(self.ours):
            self.use(NONE, vllm, self.ours)  # the ladder's now
        if not self.fleet.has(self.ours):
            raise EngineError(f"no engine with adaptive-spec: {self.fleet.failed[self.ours]}")

    def static_arm(self, k: int) -> str:
        """The arm of a static K: vLLM's own, or ours at that K if vLLM's engine is not up."""
        vllm_is_up = self.fleet.has(f"{self.extent.method}-vllm")
        return f"static{k}" if vllm_is_up else f"fixed{k}"

    def measure(self, key: str, engine: str, do: str, *arguments: Any, **named: Any) -> Any:
        """Ask an engine and keep its answer, unless it is there, the time is up or it is not up.

        Returns the answer, kept before or now; None without one.
        """
        if key not in self.results and not self.over and self.fleet.has(engine):
            try:
                self.results.add(key, self.fleet.ask(engine, do, *arguments, **named))
            except EngineError as error:
                self.fail(key, str(error))
        return self.results.found.get(key)

    def fail(self, key: str, why: str) -> None:
        """Keep why a result could not be measured; it is tried again by the next run."""
        self.results.add(f"failed/{key}", why[-2000:])
        print(f"FAILED {key}: {why}", flush=True)

    def ready(self, name: str) -> Arm | None:
        """Set the engine of an arm for it; None if the engine is not up or refuses."""
        found = arm(name, self.extent.method)
        if not self.fleet.has(found.engine):
            return None
        try:
            if found.static is not None or found.scheduled:
                self.fleet.ask(found.engine, "rpc", "bench_use_table", self._table(found))
            if found.switch is not None:
                if found.fresh:
                    self.fleet.forget_switch(found.engine)
                self.fleet.switch(found.engine, dict(found.switch))
        except EngineError as error:
            self.fail(f"arm/{name}", str(error))
            return None
        return found

    def cell(self, stage: str, name: str, load: Load, repeat: int) -> Any:
        """Serve a load in one arm; returns the result, or None without one."""
        key = self.cell_key(stage, name, load.clients, load.temperature, repeat)
        if key not in self.results and not self.over:
            found = self.ready(name)
            if found is not None:
                result = self.measure(key, found.engine, "serve", load=load)
                if result is not None:
                    print(_line(key, result), flush=True)
        return self.results.found.get(key)

    def cell_key(self, stage: str, name: str, clients: int, temperature: float, repeat: int) -> str:
        """Key of a cell's result."""
        return f"{stage}/{self.extent.method}/t{temperature:g}/{clients}/{name}/{repeat}"

    def load(self, clients: int, temperature: float, repeat: int) -> Load:
        """The load of a cell: the same prompts for every arm."""
        return Load(
            clients=clients,
            temperature=temperature,
            seed=1000 * repeat + clients,
            seconds=self.extent.cell_seconds,
            settle_seconds=min(1.0, self.extent.cell_seconds / 3),
            output_tokens=self.extent.output_tokens,
        )

    def tuned(self) -> list[tuple[int, int, int]] | None:
        """vLLM's schedule, from the static K of the sweep's first repeat."""
        extent = self.extent
        rates: dict[int, dict[int, list[float]]] = {}
        for clients in extent.loads:
            for k in extent.ks:
                for temperature in extent.temperatures:
                    key = self.cell_key("sweep", f"static{k}", clients, temperature, 0)
                    if key in self.results:
                        rate = self.results.found[key]["tokens_per_s"]
                        rates.setdefault(clients, {}).setdefault(k, []).append(rate)
        return tuned_schedule(rates, self.machine.max_num_seqs)

    def _table(self, found: Arm) -> list[tuple[int, int, int]] | None:
        if found.scheduled:
            return self.tuned()
        if found.static is None or found.static == self.machine.kmax:
            return None
        return [(1, self.machine.max_num_seqs, found.static)]


def _line(key: str, result: dict[str, Any]) -> str:
    graphs = msgspec.json.encode(result.get("graphs_by_k", {})).decode()
    milliseconds = result.get("step_ms", [0.0, 0.0, 0.0])[1]
    return (
        f"{key:44} {result['tokens_per_s']:9.1f} tok/s  K {result.get('mean_k', 0):5.2f}  "
        f"step {milliseconds:7.3f} ms  {graphs}"
    )
