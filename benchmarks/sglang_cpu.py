"""SGLang's own adaptive K beside ours, on real SGLang engines on a CPU.

    python benchmarks/sglang_cpu.py OUT_DIR [--requests 6] [--new-tokens 48]

Arms: no speculation, EAGLE3 with SGLang's static K, with its --speculative-adaptive, and with
adaptive-spec (policy goodput) on top of it. The two adaptive arms have the same candidates, which
are SGLang's default ones. Each arm serves the same prompts at temperature 0.8, in waves of 1, 8 and
32 requests at once.

What a CPU can say is which K each arm ran at which batch size and how many tokens a verify pass
brought. SGLang's compiled operators are replaced by a stand-in in PyTorch (tests/sglang/stand_in),
whose costs are not those of any server, so seconds are written to the JSON and prove nothing. Our
policy weighs the costs that it measures, which here are the stand-in's and those of whatever else
the machine does: its K is no recommendation for a GPU.

Runs in the environment `sglang`. Writes `sglang_cpu.json` and `sglang_cpu.txt`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import random
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sglang" / "support"))

from serving import Engine, Job, arguments, environment, write_config
from sglang_models import build_models

from benchmarks.bench_pair.prompts import load_prompts

CLIENTS = (1, 8, 32)
LAUNCH_K = 3
ARMS = ("no speculation", "static", "SGLang adaptive", "adaptive-spec")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--requests", type=int, default=6, help="waves of each size")
    parser.add_argument("--new-tokens", type=int, default=48)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    models = build_models(given.out)
    arms = {}
    for arm in ARMS:
        arms[arm] = run_arm(arm, models, given)
        print(f"{arm}: done", flush=True)
    result = {
        "sglang": importlib.metadata.version("sglang"),
        "waves": given.requests,
        "new_tokens": given.new_tokens,
        "temperature": 0.8,
        "launch_k": LAUNCH_K,
        "arms": arms,
    }
    (given.out / "sglang_cpu.json").write_text(json.dumps(result, indent=1) + "\n")
    text = table(result)
    (given.out / "sglang_cpu.txt").write_text(text)
    print(text)


def run_arm(arm: str, models: dict[str, Path], given: argparse.Namespace) -> dict[str, Any]:
    """Serve every load with one engine."""
    folder = given.out / arm.replace(" ", "_")
    folder.mkdir(exist_ok=True)
    options = arguments(models, folder, None if arm == "no speculation" else "EAGLE3")
    options |= {"max_running_requests": max(CLIENTS), "max_total_tokens": 12_000}
    options["schedule_conservativeness"] = 1.0
    if arm != "no speculation":
        del options["speculative_adaptive_config"]  # SGLang's default candidates
    if arm == "static":
        del options["speculative_adaptive"]
    for old in folder.glob("ks.*"):
        old.unlink()
    config = write_config(folder, policy="goodput") if arm == "adaptive-spec" else None
    variables = environment(config=config, RANK_RECORD=str(folder / "ks"))
    del variables["ADAPTIVE_SPEC_SGLANG_DWELL"]  # the default, as a user has it
    engine = Engine(options, variables, folder)
    try:
        engine.run(jobs_for("warm-up", 2, given))
        return {str(clients): run_load(engine, folder, clients, given) for clients in CLIENTS}
    finally:
        engine.close()


def run_load(
    engine: Engine, folder: Path, clients: int, given: argparse.Namespace
) -> dict[str, Any]:
    """One load: waves of as many requests as there are clients."""
    before = len(steps_of(folder))
    passes = accepted = tokens = 0
    seconds = 0.0
    for turn in range(given.requests):
        jobs = jobs_for(f"{clients}-{turn}", clients, given)
        began = time.perf_counter()
        answers = engine.run(jobs)
        seconds += time.perf_counter() - began
        for answer in answers.values():
            tokens += len(answer.tokens)
            passes += answer.meta.get("spec_verify_ct", len(answer.tokens) - 1)
            accepted += answer.meta.get("spec_num_correct_drafts", 0)
    ks = [k for _, k in steps_of(folder)[before:]]
    ran, total = Counter(ks), len(ks)
    return {
        "verify_passes": passes,
        "accepted_per_pass": accepted / passes,
        "tokens_per_pass": 1 + accepted / passes,
        "share_of_steps_by_k": {str(k): ran[k] / total for k in sorted(ran)},
        "drafted_per_pass": sum(k * ran[k] for k in ran) / total if total else None,
        "changes_of_k": sum(one != other for one, other in pairwise(ks)),
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
    }


def steps_of(folder: Path) -> list[tuple[int, int]]:
    """(batch size, K) of each decode step of an adaptive engine so far; see rank_probe."""
    return [
        (int(size), int(k))
        for path in folder.glob("ks.*")
        for size, k in (line.split() for line in path.read_text().splitlines())
    ]


def jobs_for(name: str, count: int, given: argparse.Namespace) -> list[Job]:
    """The same prompts for every arm, of all kinds in turn."""
    by_kind = load_prompts()
    kinds = sorted(by_kind)
    chosen = random.Random(name)
    options = {"temperature": 0.8, "max_new_tokens": given.new_tokens}
    return [
        Job(f"{name}-{index}", chosen.choice(by_kind[kinds[index % len(kinds)]]), options)
        for index in range(count)
    ]


def table(result: dict[str, Any]) -> str:
    """For reading."""
    lines = [
        f"SGLang {result['sglang']} on CPU, EAGLE3, T = {result['temperature']}, "
        f"{result['new_tokens']} new tokens, launch K = {result['launch_k']}",
        "",
        f"{'at once':>7}  {'arm':<16} {'tokens/pass':>11} {'drafted':>8} {'changes':>8}  "
        "steps by K",
    ]
    for clients in map(str, CLIENTS):
        for arm, loads in result["arms"].items():
            load = loads[clients]
            shares = ", ".join(
                f"{k}: {share:.0%}" for k, share in load["share_of_steps_by_k"].items()
            )
            drafted = load["drafted_per_pass"]
            fixed = {"static": f"{result['launch_k']:.2f}"}.get(arm, "0.00")
            lines.append(
                f"{clients:>7}  {arm:<16} {load['tokens_per_pass']:>11.2f} "
                f"{fixed if drafted is None else f'{drafted:.2f}':>8} {load['changes_of_k']:>8}  "
                f"{shares}"
            )
    lines += [
        "",
        "Tokens and drafts are per verify pass. Seconds are in the JSON; see the docstring.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
