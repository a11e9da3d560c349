"""A policy against the best fixed K: when step times change, from a cold start, as the load moves.

    python benchmarks/changes.py [--policy POLICY] [--parts PART,PART] [--quick]

`policy_loop.py` says what a step takes and what a score is.

* changes: after 600 steps one coefficient is multiplied by a factor; the score from the 200th to
  the 400th step after that, and of the first 200. The start is the world .01 + .0001 N + .0005 D.
* wandering: the level of all step times never rests. It wanders by 15 %, with a memory of 10 or of
  50 steps, or is 1.8 times as high in 10 of 60 steps; the score from step 200 to 2,200. No K gets
  better or worse by that.
* cold: the score over the first 500 steps, and of the worst 100 in a row.
* table: the batch size wanders between 1 and 256; the score against the best K for each batch size,
  from step 1,000 on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policy import Policy
from adaptive_spec.sim.policy_choice import PolicyChoice, parse_policy
from benchmarks.policy_loop import World, run

SCORES = (
    "before",
    "first 200",
    "after 200",
    "score",
    "first 500",
    "worst 100",
)

GOODPUT = parse_policy("goodput")

ISSUE = World(0.01, 1e-4, 5e-4)
GPUS = {
    "H100, 8B": World(0.0071, 2.1e-5, 5.3e-4, hazard=0.7),
    "H100, 8B, poor drafts": World(0.0071, 2.1e-5, 5.3e-4, hazard=0.45),
    "roofline, 70B": World(0.020, 1.0e-4, 1.2e-3, free=200, hazard=0.75),
    "CPU": World(0.055, 0.0035, 0.003, free=4, hazard=0.7),
}


def always(value: Any) -> Callable[[int], Any]:
    """The same in every step."""
    return lambda _: value


def goodput(seed: int) -> Policy:
    """The policy under test where no other is named."""
    return GOODPUT.build(seed)


def profile_of(world: World) -> CostProfile:
    """Return the step times of a world; contexts and prompts cost nothing in these."""
    bend = max(world.free, 1)
    tokens = sorted({1, bend, bend + 1})
    return CostProfile(
        tokens=tokens,
        seconds=[world.fixed + world.token * max(n - world.free, 0) for n in tokens],
        draft_pass=world.draft,
    )


def changes(choice: PolicyChoice, seeds: range, quick: bool) -> list[dict[str, Any]]:
    """One coefficient times a factor, by batch size."""
    rows = []
    factors = (1 / 30, 30.0) if quick else (1 / 30, 1 / 5, 5.0, 30.0)
    for batch in (4, 64) if quick else (1, 4, 16, 64, 256):
        for name in ("fixed", "token", "draft"):
            for factor in factors:
                after = ISSUE._replace(**{name: getattr(ISSUE, name) * factor})
                for way, (old, new) in {"there": (ISSUE, after), "back": (after, ISSUE)}.items():
                    for seed in seeds:
                        rows.append(change(batch, old, new, seed, choice))
                        rows[-1] |= {"coefficient": name, "factor": factor, "way": way}
    return rows


def change(
    batch: int,
    old: World,
    new: World,
    seed: int,
    choice: PolicyChoice = GOODPUT,
    before: int = 600,
) -> dict[str, Any]:
    """A world that becomes another one."""
    trace = run(
        choice.build(seed),
        lambda step: old if step < before else new,
        lambda _: batch,
        before + 400,
        seed,
    )
    return {
        "batch": batch,
        "best k": [old.best(batch)[1], new.best(batch)[1]],
        "before": trace.score(before - 200, before),
        "first 200": trace.score(before, before + 200),
        "after 200": trace.score(before + 200, before + 400),
        "mean k": float(trace.k[before + 200 :].mean()),
    }


def wandering(choice: PolicyChoice, seeds: range, quick: bool) -> list[dict[str, Any]]:
    """The level of all step times moves, and no K with it."""
    rows = []
    steps = 2200
    for name in ("H100, 8B",) if quick else ("H100, 8B", "H100, 8B, poor drafts", "CPU"):
        for batch in (16,) if quick else (1, 16, 64):
            for kind, memory in (("wanders", 50), ("wanders", 10), ("bursts", 0)):
                for seed in seeds:
                    level = _levels(steps, memory, seed)
                    world_at = _at_level(GPUS[name], level)
                    trace = run(choice.build(seed), world_at, always(batch), steps, seed)
                    rows.append({"world": name, "batch": batch, "level": kind, "memory": memory})
                    rows[-1] |= {"score": trace.score(200, steps)}
    return rows


def _levels(steps: int, memory: int, seed: int) -> list[float]:
    """Factor of each step's time; bursts where there is no memory."""
    if not memory:
        return [1.8 if step % 60 >= 50 else 1.0 for step in range(steps)]
    random, keep = np.random.default_rng(seed + 77), 1.0 - 1.0 / memory
    found, logarithm = [], 0.0
    for _ in range(steps):
        logarithm = keep * logarithm + 0.15 * (1 - keep**2) ** 0.5 * random.standard_normal()
        found.append(float(np.exp(logarithm)))
    return found


def _at_level(world: World, level: list[float]) -> Callable[[int], World]:
    return lambda step: world._replace(
        fixed=world.fixed * level[step],
        token=world.token * level[step],
        draft=world.draft * level[step],
    )


def cold(choice: PolicyChoice, seeds: range, quick: bool) -> list[dict[str, Any]]:
    """The first 500 steps, without anything known."""
    rows = []
    for name, world in GPUS.items():
        for batch in (64,) if quick else (16, 64, 128, 256):
            for seed in seeds:
                trace = run(choice.build(seed), always(world), always(batch), 500, seed)
                rows.append({"world": name, "batch": batch, "best k": world.best(batch)[1]})
                rows[-1] |= {"first 500": trace.score(0, 500), "worst 100": trace.worst(500)}
    return rows


def table(choice: PolicyChoice, seeds: range, quick: bool) -> list[dict[str, Any]]:
    """A wandering batch size, against the best K for each."""
    rows = []
    for name, world in GPUS.items():
        for seed in seeds:
            random = np.random.default_rng(seed)
            walk = np.cumsum(0.06 * random.standard_normal(4000)) + 4.0
            sizes = np.round(2.0 ** (8.0 - np.abs(np.mod(walk, 16.0) - 8.0))).astype(int).tolist()
            steps = 2000 if quick else 4000
            trace = run(choice.build(seed), always(world), sizes.__getitem__, steps, seed)
            rows.append({"world": name, "score": trace.score(1000, steps)})
    return rows


PARTS = {part.__name__: part for part in (changes, wandering, cold, table)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--policy", default="goodput", metavar="POLICY", help="NAME or NAME:key=value,..."
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="by comma")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="fewer worlds and batch sizes")
    arguments = parser.parse_args()
    choice = parse_policy(arguments.policy)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for part in arguments.parts.split(","):
        began = time.perf_counter()
        rows = PARTS[part](choice, seeds, arguments.quick)
        print(f"\n{part}: {time.perf_counter() - began:.0f} s")
        show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    """Every run, then mean and lowest of each column of scores."""
    for row in rows:
        cells = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values())
        print("  ".join(f"{name} {cell}" for name, cell in zip(row, cells, strict=True)))
    for column in SCORES:
        values = [row[column] for row in rows if column in row]
        if values:
            print(f"{column}: mean {np.mean(values):.4f}, lowest {min(values):.4f}")


if __name__ == "__main__":
    main()
