"""Measure adaptive-spec on a GPU, stage by stage; every result is written as it comes.

    python -m benchmarks.gpu.main OUT --models FOLDER [--stage sweep ...] [--seconds 500]
    python -m benchmarks.gpu.main OUT --models FOLDER --tiny       # on a CPU, to try the code

OUT/results.jsonl has one line per result: {"key": ..., "result": ...}. A result that is there is
not measured again, so a run that was stopped goes on where it was. Stages, in order:

identity  greedy answers of no speculation against static K and ours
sweep     tokens per second of every arm at every load, arms in turn
overhead  adaptive-spec with a fixed K, and off, against vLLM with the same K
ramp      1 -> many -> 1 clients: how K follows
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    __package__ = "benchmarks.gpu"

from .engines import NONE, EngineError, EngineProcess, Machine, setup_for, start
from .load import Load

STAGES = ("identity", "sweep", "overhead", "ramp")
LOADS = (1, 4, 16, 64, 128, 256)


class Results:
    """Results by key, kept in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: dict[str, Any] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # the last line of a run that was killed
                self.found[row["key"]] = row["result"]

    def add(self, key: str, result: Any) -> None:
        """Keep a result, at once."""
        self.found[key] = result
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "result": result}) + "\n")


class Run:
    """One run of the stages against engines that are up."""

    def __init__(
        self,
        engines: dict[str, EngineProcess],
        results: Results,
        method: str,
        machine: Machine,
        ks: tuple[int, ...],
        loads: tuple[int, ...],
        cell_seconds: float,
        deadline: float,
    ) -> None:
        self.engines, self.results, self.method = engines, results, method
        self.machine, self.ks, self.loads = machine, ks, loads
        self.cell_seconds, self.deadline = cell_seconds, deadline

    @property
    def over(self) -> bool:
        """Is the time up?"""
        return time.monotonic() > self.deadline

    def engine(self, arm: str) -> EngineProcess | None:
        """The engine of an arm, set to it; None if the engine is not up."""
        if arm == NONE:
            return self.engines.get(NONE)
        if arm.startswith(("static", "schedule")):
            engine = self.engines.get(f"{self.method}-vllm")
            if engine is not None and self.machine.gpu:
                engine.ask("table", table=self.table(arm))
            return engine
        if arm.startswith("own"):
            return self.engines.get(f"{self.method}-k{arm[3:]}")
        engine = self.engines.get(f"{self.method}-ours")
        if engine is not None and (request := self.switch(arm)):
            engine.ask("control", request=request)
        return engine

    def table(self, arm: str) -> list[tuple[int, int, int]] | None:
        """vLLM's schedule for an arm."""
        if arm.startswith("static"):
            k = int(arm[6:])
            return None if k == self.machine.kmax else [(1, self.machine.max_num_seqs, k)]
        return self.tuned_schedule()

    def tuned_schedule(self) -> list[tuple[int, int, int]]:
        """The best static K of each load measured so far, from each load up to the next."""
        rows = []
        loads = sorted(self.loads)
        first = 1
        for place, load in enumerate(loads):
            rate: dict[int, list[float]] = {}
            for key, result in self.results.found.items():
                stage, _, _, clients, arm, _ = (*key.split("/"), *[""] * 6)[:6]
                if stage == "sweep" and clients == str(load) and arm.startswith("static"):
                    rate.setdefault(int(arm[6:]), []).append(result["tokens_per_s"])
            best = max(rate, key=lambda k: sum(rate[k]) / len(rate[k])) if rate else 0
            last = loads[place + 1] - 1 if place + 1 < len(loads) else self.machine.max_num_seqs
            rows.append((first, max(first, min(last, self.machine.max_num_seqs)), best))
            first = last + 1
        return rows

    @staticmethod
    def switch(arm: str) -> dict[str, Any] | None:
        """What our run-time switch is told for an arm."""
        if arm in ("ours-cold", "reset"):
            return {"mode": "on", "policy": "goodput"}
        if arm == "ours-off":
            return {"mode": "on", "policy": "off"}
        if arm.startswith("fixed"):
            return {"mode": "on", "policy": "static", "options": {"k": int(arm[5:])}}
        return None

    def cell(self, stage: str, arm: str, load: Load, repeat: int) -> None:
        """Measure one arm at one load, unless that was done."""
        temperature = f"t{load.temperature:g}"
        key = f"{stage}/{self.method}/{temperature}/{load.clients}/{arm}/{repeat}"
        if key in self.results.found or self.over:
            return
        engine = self.engine(arm)
        if engine is None:
            return
        result = engine.ask("serve", load=msgspec.to_builtins(load))
        self.results.add(key, result)
        print(
            f"{key:44} {result['tokens_per_s']:10.1f} tok/s  K {result.get('mean_k', 0):5.2f}  "
            f"step {result.get('step_ms', [0, 0, 0])[1]:7.3f} ms  {result.get('graphs', {})}",
            flush=True,
        )

    def load(self, clients: int, temperature: float, repeat: int) -> Load:
        """A cell's load: the same prompts for every arm."""
        return Load(
            clients=clients,
            temperature=temperature,
            seed=1000 * repeat + clients,
            seconds=self.cell_seconds,
            settle_seconds=min(1.0, self.cell_seconds / 3),
        )

    def sweep(self, repeats: int, temperatures: tuple[float, ...]) -> None:
        """Every arm at every load, arms in an order drawn anew for each load."""
        chance = random.Random(0)
        for repeat in range(repeats):
            for temperature in temperatures:
                for clients in self.loads:
                    arms = [NONE, *(f"static{k}" for k in self.ks), "ours"]
                    if repeat:
                        arms.append("schedule")
                    chance.shuffle(arms)
                    for arm in arms:
                        self.cell("sweep", arm, self.load(clients, temperature, repeat), repeat)
            status = self.engines.get(f"{self.method}-ours")
            if status is not None and not self.over:
                self.results.add(
                    f"status/{self.method}/{repeat}", status.ask("control", request=None)
                )

    def overhead(self, repeats: int) -> None:
        """A fixed K by us and by vLLM; off against no speculation."""
        kmax = self.machine.kmax
        for repeat in range(repeats):
            for clients in self.loads:
                arms = [f"static{kmax}", f"fixed{kmax}", "static0", "ours-off", NONE]
                for arm in arms if repeat % 2 == 0 else arms[::-1]:
                    self.cell("overhead", arm, self.load(clients, 0.8, 50 + repeat), repeat)
        self.engine("reset")

    def identity(self, count: int) -> None:
        """Greedy answers that equal those of no speculation, in requests and tokens."""
        key = f"identity/{self.method}"
        if key in self.results.found or NONE not in self.engines or self.over:
            return
        load = msgspec.to_builtins(
            Load(clients=min(16, count), temperature=0.0, seed=7, seconds=0.0)
        )
        wanted = self.engines[NONE].ask("answers", load=load, count=count)
        found = {}
        for arm in (NONE, f"static{self.machine.kmax}", "ours"):
            engine = self.engine(arm)
            if engine is None:
                continue
            answers = engine.ask("answers", load=load, count=count)
            same = [a == b for a, b in zip(wanted, answers, strict=True)]
            prefix = [
                next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
                for a, b in zip(wanted, answers, strict=True)
            ]
            found[arm] = {
                "requests": len(same),
                "identical": sum(same),
                "tokens": sum(map(len, wanted)),
                "tokens_before_first_difference": sum(prefix),
            }
        self.results.add(key, found)
        print(key, found, flush=True)

    def ramp(self) -> None:
        """K over time while clients come and go."""
        key = f"ramp/{self.method}"
        if key in self.results.found or self.over:
            return
        engine = self.engine("ours")
        if engine is None:
            return
        peak = max(self.loads)
        clients = [(1, 6.0), (peak // 4, 6.0), (peak, 8.0), (peak // 4, 5.0), (1, 6.0)]
        if not self.machine.gpu:
            clients = [(1, 1.0), (peak, 1.0), (1, 1.0)]
        load = self.load(peak, 0.8, 99)
        self.results.add(
            key, engine.ask("ramp", clients=clients, load=msgspec.to_builtins(load))
        )
        print(key, "done", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, start the engines, run the stages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--stage", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--method", choices=("eagle", "draft_model"), default="eagle")
    parser.add_argument("--engines", nargs="+", default=None, help="keys; default: none vllm ours")
    parser.add_argument("--kmax", type=int, default=5)
    parser.add_argument("--ks", type=int, nargs="+", default=[0, 1, 2, 3, 5])
    parser.add_argument("--loads", type=int, nargs="+", default=list(LOADS))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.8])
    parser.add_argument("--draft-sampling", default="greedy")
    parser.add_argument("--cell-seconds", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=480.0, help="then no cell is begun")
    parser.add_argument("--compilation", default="{}", help="vLLM's compilation_config")
    parser.add_argument("--adaptive", default="{}", help="configuration of adaptive-spec")
    parser.add_argument("--kv-gigabytes", type=float, default=5.0)
    parser.add_argument("--memory-share", type=float, default=0.28)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--tiny", action="store_true", help="on a CPU, to try the code")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    if options.tiny:
        options.loads, options.repeats, options.cell_seconds = [1, 4], 2, 0.5
        options.max_num_seqs = 4
    machine = Machine(
        models=str(options.models),
        gpu=not options.tiny,
        max_num_seqs=options.max_num_seqs,
        kv_gigabytes=options.kv_gigabytes,
        memory_share=options.memory_share,
        kmax=options.kmax,
        draft_sampling=options.draft_sampling,
        compilation=json.loads(options.compilation),
    )
    results = Results(options.out / "results.jsonl")
    method = options.method
    keys = options.engines or [NONE, f"{method}-vllm", f"{method}-ours"]
    adaptive = json.loads(options.adaptive)
    setups = {key: setup_for(key, machine, adaptive) for key in keys}
    began = time.monotonic()
    started = start(setups, options.out / "logs")
    engines = {key: one for key, one in started.items() if isinstance(one, EngineProcess)}
    for key, one in started.items():
        if isinstance(one, EngineError):
            print(f"error: {one}", file=sys.stderr, flush=True)
        else:
            facts = one.ask("facts")
            results.add(f"engine/{key}", facts)
            print(key, facts, flush=True)
    print(f"engines up after {time.monotonic() - began:.0f} s", flush=True)
    if len(engines) < len(setups):
        for engine in engines.values():
            engine.stop()
        return 3
    run = Run(
        engines,
        results,
        method,
        machine,
        tuple(options.ks if machine.gpu else [machine.kmax]),
        tuple(options.loads),
        options.cell_seconds,
        deadline,
    )
    try:
        if "identity" in options.stage:
            run.identity(10 if options.tiny else 80)
        if "sweep" in options.stage:
            run.sweep(options.repeats, tuple(options.temperatures))
        if "overhead" in options.stage:
            run.overhead(1)
        if "ramp" in options.stage:
            run.ramp()
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        for engine in engines.values():
            engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
