"""A policy against the best fixed K: when step times change, from a cold start, in the long run.

    python benchmarks/changes.py [--policy POLICY] [--parts PART,PART] [--quick] [--json after.json]

`policy_loop.py` says what a step takes and what a score is.

* changes: after 600 steps one coefficient is multiplied by a factor; the score from the 200th to
  the 400th step after that, and of the first 200. The start is the world .01 + .0001 N + .0005 D.
* steady: the score from step 1,000 to 4,000 where nothing changes.
* wandering: the level of all step times never rests. It wanders by 15 %, with a memory of 10 or of
  50 steps, or is 1.8 times as high in 10 of 60 steps; the score from step 200 to 2,200. No K gets
  better or worse by that.
* cold: the score over the first 500 steps and of the worst 100 in a row, without a prior and after
  a restart from a saved state.
* table: the batch size wanders between 1 and 256; the score against the best K for each batch size,
  from step 1,000 to 4,000, and that over the score of a table tuned on the same run. The last
  column leaves out a load's first 200 steps, whenever they come.
* told: the same from the true step times, given as a cost profile. What `table` lacks beyond this,
  learning step times from nothing has cost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.policies.cost_profile import CostProfile
from adaptive_spec.policy import Policy, build_policy
from adaptive_spec.policy_helpers import load_bin
from adaptive_spec.sim.policy_choice import PolicyChoice, parse_policy
from benchmarks.policy_loop import KMAX, World, run

SCORES = (
    "before",
    "first 200",
    "after 200",
    "score",
    "first 500",
    "worst 100",
    "restarted",
    "over a table",
    "known loads over a table",
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


def steady(choice: PolicyChoice, seeds: range, quick: bool) -> list[dict[str, Any]]:
    """Nothing changes."""
    rows = []
    for name, world in {"issue": ISSUE, **GPUS}.items():
        for batch in (16,) if quick else (1, 16, 64, 256):
            for seed in seeds:
                steps = 4000 if batch < 256 else 2500
                trace = run(choice.build(seed), always(world), always(batch), steps, seed)
                best = world.best(batch)[1]
                rows.append({"world": name, "batch": batch, "best k": best})
                rows[-1] |= {"score": trace.score(1000, steps), "mean k": float(trace.k.mean())}
    return rows


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
    """The first 500 steps, without anything known and after a restart."""
    rows = []
    for name, world in GPUS.items():
        for batch in (64,) if quick else (16, 64, 128, 256):
            for seed in seeds:
                row: dict[str, Any] = {"world": name, "batch": batch}
                row["best k"] = world.best(batch)[1]
                policy = choice.build(seed)
                trace = run(policy, always(world), always(batch), 500, seed)
                row |= {"first 500": trace.score(0, 500), "worst 100": trace.worst(500)}
                again = choice.build(seed + 1)
                again.restore(json.loads(json.dumps(policy.state())))
                trace = run(again, always(world), always(batch), 500, seed + 99)
                rows.append(row | {"restarted": trace.score(0, 500)})
    return rows


def table(choice: PolicyChoice, seeds: range, quick: bool) -> list[dict[str, Any]]:
    """A wandering batch size, against the best K for each."""
    return _wandering_load(lambda _, seed: choice.build(seed), seeds, quick)


def told(choice: PolicyChoice, seeds: range, quick: bool) -> list[dict[str, Any]]:
    """The same with step times that are known beforehand."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "profile.json"

        def knowing(world: World, seed: int) -> Policy:
            file.write_bytes(msgspec.json.encode(profile_of(world)))
            return build_policy(choice.name, choice.options | {"profile": str(file)}, seed=seed)

        return _wandering_load(knowing, seeds, quick)


def _wandering_load(
    make: Callable[[World, int], Policy], seeds: range, quick: bool
) -> list[dict[str, Any]]:
    rows = []
    for name, world in GPUS.items():
        for seed in seeds:
            random = np.random.default_rng(seed)
            walk = np.cumsum(0.06 * random.standard_normal(4000)) + 4.0
            sizes = np.round(2.0 ** (8.0 - np.abs(np.mod(walk, 16.0) - 8.0))).astype(int).tolist()
            steps = 2000 if quick else 4000
            trace = run(make(world, seed), always(world), sizes.__getitem__, steps, seed)
            score = trace.score(1000, steps)
            row = {"world": name, "score": score}
            row["over a table"] = score / _score_of_table(world, sizes[1000:steps])
            known = _steps_of_known_loads(sizes[:steps])
            of_table = _score_of_table(world, [sizes[i] for i in known])
            score = float(trace.tokens[known].sum() / trace.best[known].sum())
            rows.append(row | {"known loads over a table": score / of_table})
    return rows


def _steps_of_known_loads(sizes: list[int]) -> list[int]:
    """Steps from 1,000 on whose load, within a factor of two, 200 steps had before."""
    before: Counter[int] = Counter()
    known = []
    for step, size in enumerate(sizes):
        load = load_bin(size)
        if step >= 1000 and before[load] >= 200:
            known.append(step)
        before[load] += 1
    return known


def _score_of_table(world: World, sizes: list[int]) -> float:
    """Score of the table with one K for each doubling of the batch size, the best one in hindsight.

    vLLM's own key for such tables is `num_speculative_tokens_per_batch_size`.
    """
    tokens = of_best = 0.0
    for _, doubling in itertools.groupby(sorted(sizes), int.bit_length):
        alike = list(doubling)
        seconds = {k: [world.seconds(n * (1 + k), k) for n in alike] for k in range(KMAX + 1)}
        best = max(seconds, key=lambda k: world.tokens(k) / sum(seconds[k]))
        tokens += world.tokens(best) * sum(alike)
        of_best += sum(world.best(n)[0] * s for n, s in zip(alike, seconds[best], strict=True))
    return tokens / of_best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--policy", default="goodput", metavar="POLICY", help="NAME or NAME:key=value,..."
    )
    parser.add_argument(
        "--parts", default="changes,steady,wandering,cold,table,told", help="by comma"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="fewer worlds and batch sizes")
    parser.add_argument("--json", type=Path, help="write every run here")
    arguments = parser.parse_args()
    known = {
        "changes": changes,
        "steady": steady,
        "wandering": wandering,
        "cold": cold,
        "table": table,
        "told": told,
    }
    choice = parse_policy(arguments.policy)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    found: dict[str, list[dict[str, Any]]] = {}
    for part in arguments.parts.split(","):
        began = time.perf_counter()
        found[part] = known[part](choice, seeds, arguments.quick)
        print(f"\n{part}: {time.perf_counter() - began:.0f} s")
        show(found[part])
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


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
