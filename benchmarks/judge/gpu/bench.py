"""One run of the stages: its engines, its results, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.adapters.vllm.graph_ladder import rungs
from adaptive_spec.sim.baselines.engines.batch_table import tuned_table
from adaptive_spec.sim.line_file import LineFile

from ..arms import NONE, TABLE_CONSTANT, Arm, Table, parse_arm
from ..processes import ProcessError
from ..real.traffic import Load
from ..rows import COLD
from .fleet import Fleet
from .setups import Options, engine_of


class Result(msgspec.Struct, frozen=True):
    """A line of results.jsonl."""

    key: str
    result: Any


class Results(LineFile[Result]):
    """Results by key. What is there is not measured again; of several with one key the last counts.

    Attributes:
        found: results by key.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, Result)
        self.found = {row.key: row.result for row in self}

    def __contains__(self, key: str) -> bool:
        return key in self.found

    def add(self, key: str, result: Any) -> None:
        """Keep a result, at once."""
        self.append(Result(key, result))
        # As a later run reads it: keys of objects become text.
        self.found[key] = msgspec.to_builtins(result, str_keys=True)


class Bench:
    """Measures cells and keeps what they gave."""

    def __init__(self, options: Options, results: Results, seconds: float) -> None:
        self.options, self.results = options, results
        self.fleet = Fleet(options)
        self._deadline = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._deadline - time.monotonic()

    @property
    def over(self) -> bool:
        """Is the time up? No cell is begun then."""
        return self.left < 0

    @property
    def rungs(self) -> tuple[int, ...]:
        """K of the ladder that has full graphs on a GPU."""
        return rungs(self.options.kmax, (), most=self.options.max_num_seqs)

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
        found = f"{self.options.method}-ours"
        return f"{self.options.method}-ladder" if found in self.fleet.failed else found

    def use_sweep(self) -> None:
        """Have the sweep's engines up: no speculation, vLLM's table, adaptive-spec.

        Raises ProcessError without the last: the others alone are not worth the time.
        """
        for _ in range(2):  # the second time with the ladder's, if the first one failed
            self.use(NONE, f"{self.options.method}-vllm", self.ours)
            if self.fleet.has(self.ours):
                return
        raise ProcessError(f"no engine with adaptive-spec: {self.fleet.failed[self.ours]}")

    def static_arm(self, k: int) -> str:
        """The arm of a static K: vLLM's own, or ours at that K if vLLM's engine is not up."""
        return f"k{k}" if self.fleet.has(f"{self.options.method}-vllm") else f"fixed{k}"

    def measure(self, key: str, engine: str, do: str, **named: Any) -> Any:
        """Ask an engine and keep its answer, unless it is there, the time is up or it is not up.

        Returns the answer, kept before or now; None without one.
        """
        if key not in self.results and not self.over and self.fleet.has(engine):
            try:
                self.results.add(key, self.fleet.ask(engine, do, **named))
            except ProcessError as error:
                self.fail(key, str(error))
        return self.results.found.get(key)

    def fail(self, key: str, why: str) -> None:
        """Keep why a result could not be measured; it is tried again by the next run."""
        self.results.add(f"failed/{key}", why[-2000:])
        print(f"FAILED {key}: {why}", flush=True)

    def ready(self, name: str) -> str:
        """Set the engine of an arm for it, and return its key; empty if it is not up or refuses.

        The name of an arm that learns ends with `cold`, or with `warm` for one that goes on.
        """
        arm = parse_arm(name.partition(" ")[0] if name != TABLE_CONSTANT else "k0")
        engine = engine_of(arm, self.options.method)
        if arm.policy and engine.endswith("-ours"):
            engine = self.ours
        if not self.fleet.has(engine):
            return ""
        try:
            if arm.policy:
                request = {"mode": "on", "policy": arm.policy, "options": dict(arm.options)}
                self.fleet.switch(engine, request, anew=name.endswith(COLD))
            elif arm.k != -1:
                self.fleet.ask(engine, "table", table=self._table(name, arm))
        except ProcessError as error:
            self.fail(f"arm/{name}", str(error))
            return ""
        return engine

    def cell(self, stage: str, name: str, load: Load, repeat: int) -> None:
        """Serve a load in one arm."""
        key = self._key(stage, name, load, repeat)
        if key in self.results or self.over or not (engine := self.ready(name)):
            return
        seconds = self.options.cell_seconds
        settle = min(1.0, seconds / 3)
        found = self.measure(key, engine, "serve", load=load, seconds=seconds, settle=settle)
        if found is not None:
            print(
                f"{key:48} {found['tokens_per_s']:9.1f} tok/s  K {found.get('mean_k', 0):5.2f}  "
                f"step {found.get('step_ms', [0.0, 0.0])[1]:7.3f} ms  {found.get('graphs_by_k')}",
                flush=True,
            )

    def load(self, clients: int, temperature: float, repeat: int, requests: int = 0) -> Load:
        """A load: the same whole prompts for every arm, over and over without `requests`."""
        return Load(
            name=str(clients),
            pieces=((clients, requests or 1),),
            temperature=temperature,
            tokens=self.options.output_tokens,
            seed=1000 * repeat + clients,
            distinct=requests or 640,
            characters=None,
        )

    def _key(self, stage: str, name: str, load: Load, repeat: int) -> str:
        return f"{stage}/{self.options.method}/t{load.temperature:g}/{load.name}/{name}/{repeat}"

    def _table(self, name: str, arm: Arm) -> Table | None:
        if name != TABLE_CONSTANT:
            k = arm.k or 0
            return None if k == self.options.kmax else [(1, self.options.max_num_seqs, k)]
        options = self.options
        rates: dict[int, dict[int, float]] = {}
        for clients in options.loads:
            load = self.load(clients, options.temperatures[0], 0)
            for k in options.ks:
                found = self.results.found.get(self._key("sweep", f"k{k}", load, 0))
                if found is not None:
                    rates.setdefault(clients, {})[k] = found["tokens_per_s"]
        if not rates:
            return None
        table = tuned_table(rates)
        return [*table[:-1], (table[-1][0], self.options.max_num_seqs, table[-1][2])]
