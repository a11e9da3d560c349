"""A policy against every fixed K on a small, representative set of cells: for tuning.

    python benchmarks/goodput_check.py [--policy goodput:confidence=false] [--seeds 3]

Acceptance sets x closed loops, H100, 8B, EAGLE (n-gram for its own list), Kmax = 6. For each set it
prints throughput over that of the best fixed K and over that of no speculation, by concurrency:
means over the seeds, and the worst cell. Sets that end in `+auc.85` show a synthetic confidence of
that AUC, `+conf` the recorded one; all others hide it. Measuring begins after `2,000 x concurrency`
tokens, about 1,000 steps; `--first` instead measures the first 1,000 x concurrency tokens, about
500 steps, from an empty engine.

Every policy meets the same requests and the same luck. Results of the fixed K are kept in
out/oracles, under the scenario and a fingerprint of the simulator's behaviour.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import msgspec

from adaptive_spec.policies.kernels import kernel_in_use, select_kernel
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.sim.data_folder import ENVIRONMENT_VARIABLE, data_folder
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.policy_choice import PolicyChoice, parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate

CACHE = Path(__file__).resolve().parents[1] / "out" / "oracles"
KMAX = 6
TASKS = ("code", "prose", "json", "log", "random")
GSM8K = "unlicensed/acceptance_specdecodebench_llama31_8b_gsm8k.jsonl.gz"
INSTRUCTCODER = "unlicensed/acceptance_specdecodebench_llama31_8b_instructcoder.jsonl.gz"
CONCURRENCY = {1: 8_000, 4: 20_000, 16: 48_000, 64: 128_000, 256: 384_000}
"""Measured tokens by concurrency."""


@dataclass(frozen=True)
class Set:
    """Acceptance data, and how it is drafted."""

    files: tuple[str, ...]
    drafter: str = "eagle"


SETS = {
    "gsm8k": Set((GSM8K,)),
    "instructcoder": Set((INSTRUCTCODER,)),
    "mixed": Set((GSM8K, INSTRUCTCODER)),
    "gsm8k-ngram": Set((GSM8K,), "ngram"),
    "own-good": Set(tuple(f"own/bench_draft_{task}_t0.8.npz" for task in TASKS)),
    "own-poor": Set(tuple(f"own/bench_poor_{task}_t0.8.npz" for task in TASKS)),
    "steady-5": Set(("model:steady-5",)),
}
WITH_CONFIDENCE = ("gsm8k+auc.85", "instructcoder+auc.85", "mixed+auc.85", "own-good+conf")


def scenario(name: str, concurrency: int, seed: int, folder: Path, *, first: bool) -> Scenario:
    """The scenario of a cell; confidence is in the name."""
    plain, _, signal = name.partition("+")
    chosen = SETS[plain]
    files = [each if ":" in each else str(folder / each) for each in chosen.files]
    return Scenario(
        load=f"closed:{concurrency}",
        acceptance=tuple(files),
        drafter=chosen.drafter,
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=KMAX),
        seed=seed,
        tokens=1_000 * concurrency if first else CONCURRENCY[concurrency],
        warmup_tokens=0 if first else 2_000 * concurrency,
        confidence_auc=float(signal[3:]) if signal.startswith("auc") else None,
        hide_confidence=not signal,
    )


def fingerprint() -> str:
    """Digest of what a fixed K does in a short run: changes when the simulator does."""
    short = Scenario(
        load="closed:4",
        acceptance=("model:mixed",),
        drafter="eagle",
        hardware="h100-llama-8b",
        tokens=4_000,
        warmup_tokens=500,
    )
    results = [simulate(short, parse_policy(text)) for text in ("off", "static:k=4")]
    figures = [(result.throughput_tok_s, result.steps, result.tokens) for result in results]
    return hashlib.blake2b(msgspec.json.encode(figures), digest_size=8).hexdigest()


def oracle(cell: Scenario, mark: str) -> list[float]:
    """[Kmax + 1] throughput of each fixed K, from the cache if it is there."""
    plain = msgspec.structs.replace(cell, confidence_auc=None, hide_confidence=True)
    text = msgspec.json.encode((mark, plain))
    file = CACHE / f"{hashlib.blake2b(text, digest_size=12).hexdigest()}.json"
    if file.exists():
        return msgspec.json.decode(file.read_bytes(), type=list[float])
    found = [
        plain.run(StaticPolicy(StaticOptions(k=k)), f"static:k={k}").throughput_tok_s
        for k in range(KMAX + 1)
    ]
    CACHE.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(msgspec.json.encode(found))
    part.replace(file)
    return found


class Cells:
    """Ratios by acceptance set and concurrency, a value per seed."""

    def __init__(self) -> None:
        self.of_best: dict[tuple[str, int], list[float]] = {}
        self.of_none: dict[tuple[str, int], list[float]] = {}
        self.best_k: dict[tuple[str, int], int] = {}
        self.rows: list[dict[str, object]] = []

    def add(self, name: str, concurrency: int, speed: float, fixed: list[float]) -> None:
        """A run, and those of the fixed K on the same cell."""
        where = name, concurrency
        best = max(fixed)
        self.best_k[where] = fixed.index(best)
        self.of_best.setdefault(where, []).append(speed / best)
        self.of_none.setdefault(where, []).append(speed / fixed[0])

    def lines(self, names: list[str], loads: list[int]) -> Iterator[str]:
        """A table: a row per set, `/ best K` and `/ no speculation` by concurrency, best K."""
        head = "".join(f"{load:>8}" for load in loads)
        yield f"{'':22}{'/ best K':>{8 * len(loads)}}     {'/ no speculation':>{8 * len(loads)}}"
        yield f"{'':22}{head}     {head}    best K"
        for name in names:
            best = "".join(f"{mean(self.of_best[name, load]):8.3f}" for load in loads)
            none = "".join(f"{mean(self.of_none[name, load]):8.3f}" for load in loads)
            ks = " ".join(str(self.best_k[name, load]) for load in loads)
            yield f"{name:22}{best}     {none}    {ks}"
        for title, pick in (("mean", mean), ("worst", min)):
            best = "".join(f"{pick([self._mean(n, load) for n in names]):8.3f}" for load in loads)
            yield f"{title:22}{best}"
        cells = list(itertools.product(names, loads))
        worst = min(cells, key=lambda cell: self._mean(*cell))
        least = min(cells, key=lambda cell: mean(self.of_none[cell]))
        yield (
            f"mean {mean(self._mean(*cell) for cell in cells):.4f}; worst "
            f"{self._mean(*worst):.4f} at {worst[0]} x {worst[1]}; worst against no speculation "
            f"{mean(self.of_none[least]):.4f} at {least[0]} x {least[1]}"
        )

    def _mean(self, name: str, load: int) -> float:
        return mean(self.of_best[name, load])


def chosen(text: str | None, known: tuple[str, ...]) -> list[str]:
    """Names out of those there are."""
    names = list(known) if text is None else text.split(",")
    wrong = [name for name in names if name.partition("+")[0] not in SETS]
    if wrong:
        raise SystemExit(f"no acceptance set {wrong[0]!r}; there are {', '.join(known)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="goodput", help="NAME or NAME:key=value,...")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--sets", help="names by comma; +auc.85 or +conf behind one: confidence")
    parser.add_argument("--concurrency", help="numbers by comma")
    parser.add_argument("--confidence", choices=("both", "with", "without"), default="both")
    parser.add_argument("--first", action="store_true", help="measure the cold start instead")
    parser.add_argument("--json", type=Path, help="write every cell here")
    parser.add_argument("--data", type=Path, help="folder of public traces")
    arguments = parser.parse_args()
    folder = data_folder(arguments.data).resolve()
    os.environ[ENVIRONMENT_VARIABLE] = str(folder)
    select_kernel("auto")
    plain = tuple(SETS) if arguments.confidence != "with" else ()
    signal = WITH_CONFIDENCE if arguments.confidence != "without" else ()
    names = chosen(arguments.sets, (*plain, *signal))
    loads = [int(each) for each in (arguments.concurrency or "1,4,16,64,256").split(",")]
    choice = parse_policy(arguments.policy)
    mark, began = fingerprint(), time.perf_counter()
    cells = run(names, loads, choice, arguments, folder, mark)
    shown = [[name for name in names if ("+" in name) is signalled] for signalled in (False, True)]
    for title, group in zip(("history only", "with confidence"), shown, strict=True):
        if group:
            print(f"\n{arguments.policy}, {title}, {arguments.seeds} seeds")
            print("\n".join(cells.lines(group, loads)))
    print(f"\n{time.perf_counter() - began:.0f} s, {kernel_in_use()} planner")
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(cells.rows) + b"\n")


def run(
    names: list[str],
    loads: list[int],
    choice: PolicyChoice,
    arguments: argparse.Namespace,
    folder: Path,
    mark: str,
) -> Cells:
    """Every cell, set by set, so that its data is read once."""
    cells = Cells()
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    for name, seed, load in itertools.product(names, seeds, loads):
        cell = scenario(name, load, seed, folder, first=arguments.first)
        fixed = oracle(cell, mark)
        result = simulate(cell, choice)
        cells.add(name, load, result.throughput_tok_s, fixed)
        cells.rows.append(
            {
                "set": name,
                "concurrency": load,
                "seed": seed,
                "fixed": fixed,
                "throughput": result.throughput_tok_s,
                "mean_k": result.mean_k,
                "modes": result.mode_fraction,
                "decision_us": result.decision_us.p50,
                "fail_opens": result.fail_opens,
            }
        )
        if result.fail_opens:
            print(f"{name} x {load}, seed {seed}: {result.fail_opens} fail-opens")
        if result.fail_opens > result.steps // 2:
            raise SystemExit("the policy fails at every step; see the log line above")
    return cells


if __name__ == "__main__":
    main()
