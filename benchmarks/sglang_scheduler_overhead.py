r"""CPU time that the SGLang adapter adds to a step of SGLang's own scheduler.

    PYTHONPATH=tests/sglang/stand_in:. python \
        benchmarks/sglang_scheduler_overhead.py MODELS [--batches 1,16,64] [--steps 300]

in the environment that SGLang is installed in. MODELS is a folder for the small bench models. One
real scheduler runs EAGLE with the plain loop; its model computes on the CPU, which leaves caches as
cold as a server's. The arms take turns, a block of requests each; in every block the requests that
end are replaced. Figures are CPU time of the scheduler's thread, medians over decode steps:

* critical: a turn of the loop without the worker's forward pass, for which the device would work.
* total: the same and what the adapter does in `think`, while the device would work.

The line `sglang` has the same turns without the adapter's part of them. A ratio is that of medians,
less 1; its interval has 95 % of resampled pairs of steps.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.judge.sglang_scheduler import build_scheduler, next_batch, submit

KMAX = 4
_LADDER = {"1": {"candidate_steps": [0, 1, 2, 3, 4]}}
_PROMPT, _OUTPUT = 32, (60, 160)
_WARM_STEPS = 10
"""Steps at the start of a block that are not counted."""

ARMS: dict[str, dict[str, Any]] = {
    "static": {"policy": "static"},
    "goodput": {"policy": "goodput"},
}
_PATIENT = {"fail_open": {"max_decision_ms": 1000}}
_RESAMPLES = 300


class Spent(NamedTuple):
    """Seconds of one step."""

    critical: float
    total: float


def summary(spent: dict[str, list[Spent]]) -> dict[str, dict[str, Any]]:
    """Microseconds, and ratios to the first arm, by arm."""
    base = np.array(next(iter(spent.values())))
    found: dict[str, dict[str, Any]] = {}
    for name, steps in spent.items():
        here = np.array(steps)
        found[name] = {
            part: {
                "us": round(1e6 * float(np.median(here[:, column])), 1),
                "ratio": _ratio(here[:, column], base[:, column]),
                "interval": _interval(here[:, column], base[:, column]),
                "means": round(statistics.fmean(here[:, column]) / base[:, column].mean() - 1, 3),
            }
            for column, part in enumerate(Spent._fields)
        }
    return found


def _ratio(here: Any, base: Any) -> float:
    return round(float(np.median(here) / np.median(base)) - 1, 3)


def _interval(here: Any, base: Any) -> list[float]:
    draw = np.random.default_rng(0)
    rows = draw.integers(0, len(base), (_RESAMPLES, len(base)))
    ratios = np.median(here[rows], axis=1) / np.median(base[rows], axis=1) - 1
    return [round(float(value), 3) for value in np.quantile(ratios, [0.025, 0.975])]


def print_cell(title: str, arms: dict[str, dict[str, Any]]) -> None:
    """Print a line per arm."""
    print(title, flush=True)
    for name, parts in arms.items():
        shown = (
            f"{part} {of['us']:7.0f} us {of['ratio']:+.3f} {of['interval']} mean {of['means']:+.3f}"
            for part, of in parts.items()
        )
        print(f"  {name:20} {'; '.join(shown)}", flush=True)


class Stopwatch:
    """CPU seconds spent in a function since the last look."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._seconds = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        began = time.thread_time()
        try:
            return self._function(*args, **kwargs)
        finally:
            self._seconds += time.thread_time() - began

    def take(self) -> float:
        """Return the seconds, and start at 0 again."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


class Arm:
    """A policy on SGLang's scheduler, with a clock on each part of the adapter."""

    def __init__(self, attached: Any) -> None:
        self.attached = attached
        driver = attached.driver
        self._critical = [Stopwatch(f) for f in (driver.before_run, driver.read, driver.applied)]
        driver.before_run, driver.read, driver.applied = self._critical
        self._think = driver.think = Stopwatch(driver.think)

    def take(self) -> tuple[float, float]:
        """Return the adapter's seconds since the last look: critical ones, and those in `think`."""
        return sum(watch.take() for watch in self._critical), self._think.take()


class Bench:
    """One scheduler, and the arms that take turns on it.

    Args:
        scheduler: SGLang's Scheduler with our hooks.
        configs: arm -> configuration of adaptive-spec.
    """

    def __init__(self, scheduler: Any, configs: dict[str, dict[str, Any]]) -> None:
        from adaptive_spec.adapters.sglang import hooks
        from adaptive_spec.adapters.sglang.attach import attach, params_of
        from adaptive_spec.adapters.sglang.settings import Settings
        from adaptive_spec.config import parse_config

        self._scheduler = scheduler
        self._shared = hooks.SHARED
        params = params_of(scheduler.draft_worker)
        assert params is not None
        self._params = params
        self._forward = Stopwatch(scheduler.model_worker.forward_batch_generation)
        scheduler.model_worker.forward_batch_generation = self._forward
        self._arms: dict[str, Arm] = {}
        for name, config in configs.items():
            settings = Settings(config=parse_config({**config, **_PATIENT}, source=name))
            self._arms[name] = Arm(attach(scheduler, settings, self._shared.source))
        self._random = random.Random(0)
        self._made = 0

    def block(self, name: str, batch: int, steps: int) -> list[tuple[Spent, Spent]]:
        """Run one arm for so many full decode steps, then let its requests end.

        Returns what each step took without and with the adapter.
        """
        arm = self._arms[name]
        self._shared.attached, self._params.driver = arm.attached, arm.attached.driver
        found: list[tuple[Spent, Spent]] = []
        full = 0
        while full < steps + _WARM_STEPS:
            self._top_up(batch)
            size, own, critical, think = self._turn(arm)
            if size == batch:
                full += 1
                if full > _WARM_STEPS:
                    ours = Spent(own + critical, own + critical + think)
                    found.append((Spent(own, own), ours))
        while self._scheduler.waiting_queue or self._present():
            self._turn(arm)
        return found

    def _turn(self, arm: Arm) -> tuple[int, float, float, float]:
        """Take one turn of the plain loop.

        Returns the number of decoding requests, and the seconds of SGLang, of the adapter on the
        critical path and of the adapter in `think`.
        """
        scheduler = self._scheduler
        began = time.thread_time()
        batch = next_batch(scheduler)
        size = 0
        if batch:
            size = len(batch.reqs) if batch.forward_mode.is_decode() else 0
            result = scheduler.run_batch(batch)
            scheduler.process_batch_result(batch, result)
        scheduler.last_batch = batch
        took = time.thread_time() - began
        critical, think = arm.take()  # the forward pass holds `think`
        return size, took - self._forward.take() - critical, critical, think

    def _present(self) -> int:
        scheduler = self._scheduler
        batches = (scheduler.running_batch, scheduler.last_batch)
        names = {r.rid for b in batches if b is not None for r in b.reqs if not r.finished()}
        return len(names)

    def _top_up(self, batch: int) -> None:
        for _ in range(batch - self._present() - len(self._scheduler.waiting_queue)):
            self._add_request()

    def _add_request(self) -> None:
        words = [self._random.randrange(3, 60) for _ in range(_PROMPT)]
        most = self._random.randrange(*_OUTPUT)
        self._made += 1
        limits = {"temperature": 0.0, "max_new_tokens": most, "ignore_eos": True}
        submit(self._scheduler, f"request-{self._made}", words, **limits)


def scheduler_of(models: Path, folder: Path) -> Any:
    """SGLang's scheduler as its process builds it, for EAGLE and 256 requests."""
    from sglang_models import build_models

    candidates = folder / "candidates.json"
    candidates.write_text(json.dumps(_LADDER), encoding="utf-8")
    built = build_models(models)
    arguments = dict(
        model_path=str(built["target"]),
        speculative_draft_model_path=str(built["eagle"]),
        speculative_algorithm="EAGLE",
        speculative_num_steps=KMAX,
        speculative_num_draft_tokens=KMAX + 1,
        speculative_eagle_topk=1,
        speculative_adaptive=True,
        speculative_adaptive_config=str(candidates),
        max_total_tokens=80_000,
        max_running_requests=256,
    )
    return build_scheduler(arguments, folder, hooked=True)


def main() -> int:
    """Print a line per batch size and arm; save JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("--batches", default="1,16,64")
    parser.add_argument("--steps", type=int, default=300, help="of each arm")
    parser.add_argument("--blocks", type=int, default=6, help="turns of each arm")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/sglang/support"))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(scheduler_of(args.models, Path(folder)), ARMS)
    found = []
    for batch in map(int, args.batches.split(",")):
        taken: dict[str, list[tuple[Spent, Spent]]] = {name: [] for name in ARMS}
        for turn in range(args.blocks + 1):
            for name in ARMS:
                steps = bench.block(name, batch, args.steps // args.blocks)
                if turn:  # the first block is warm-up
                    taken[name] += steps
        for name, steps in taken.items():
            own, ours = map(list, zip(*steps, strict=True))
            arms = summary({"sglang": own, name: ours})
            print_cell(f"plain loop, {batch} requests", arms)
            found.append({"batch": batch, "arms": arms})
    if args.json:
        args.json.write_text(json.dumps({"command": " ".join(sys.argv), "cells": found}, indent=1))
    sys.stdout.flush()
    os._exit(0)  # SGLang's threads would keep the process


if __name__ == "__main__":
    sys.exit(main())
