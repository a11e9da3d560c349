"""Measure the worth of task labels: short requests of two kinds, told apart or not.

    python benchmarks/labelled.py [--policy POLICY] [--seeds N]

Tool calls of 8 to 19 tokens have hazards about .95, answers of 3 to 11 tokens about .2; logits of
requests deviate by .3. Tokens per second with a label for each kind and with one label for both,
in a closed loop; the first 10,000 tokens are left out. No figures of a real model.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.policy import build_policy
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.scenario import Scenario

KINDS = (("tool", 0.95, 8, 20), ("answer", 0.2, 3, 12))
"""Label, hazard, and range of output tokens."""
CELLS = (("h100-llama-8b", 32), ("h100-llama-8b", 128), ("a100-llama-8b", 16))
KMAX, TOKENS, RECORDS = 8, 80_000, 600


def records(folder: Path, *, told: bool) -> str:
    """Write acceptance lists and return their file; `told`: each kind has its own label."""
    random, rows = np.random.default_rng(0), []
    for _ in range(RECORDS):
        for label, hazard, least, most in KINDS:
            logit = math.log(hazard / (1.0 - hazard)) + 0.3 * random.standard_normal()
            tokens, lengths, run = int(random.integers(least, most)), [], 0
            for right in random.random(tokens + KMAX) < 1.0 / (1.0 + math.exp(-logit)):
                lengths.append(1 + run)
                run = min(run + 1, KMAX) if right else 0
            row = {"prompt_len": int(random.integers(8, 24)), "eagle": lengths[: -tokens - 1 : -1]}
            rows.append(json.dumps(row | {"dataset": label if told else "any"}))
    file = folder / f"told_{told}.jsonl"
    file.write_text("\n".join(rows) + "\n")
    return str(file)


def reached(policy: str, hardware: str, clients: int, file: str, seed: int) -> float:
    """Return tokens per second."""
    scenario = Scenario(
        load=f"closed:{clients}",
        acceptance=(file,),
        drafter="eagle",
        hardware=hardware,
        engine=EngineOptions(max_draft_tokens=KMAX),
        tokens=TOKENS,
        warmup_tokens=10_000,
        seed=seed,
    )
    return float(scenario.run(build_policy(policy, seed=seed), policy).throughput_tok_s)


def main() -> None:
    """Print a line for each cell and seed."""
    parser = argparse.ArgumentParser(description="What task labels are worth")
    parser.add_argument("--policy", default="goodput")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [records(Path(folder), told=told) for told in (False, True)]
        for hardware, clients in CELLS:
            for seed in range(1, args.seeds + 1):
                of_all, of_each = (
                    reached(args.policy, hardware, clients, file, seed) for file in files
                )
                gain = 100.0 * (of_each / of_all - 1.0)
                print(
                    f"{hardware} {clients:4} clients, seed {seed}: one label {of_all:.0f}, "
                    f"two {of_each:.0f}, {gain:+.2f} %",
                    flush=True,
                )


if __name__ == "__main__":
    main()
