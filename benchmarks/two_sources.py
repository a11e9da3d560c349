"""Two sources of drafts, chosen online, against each alone and against fixed rules.

    python benchmarks/two_sources.py [--sets copying,prose,mixed] [--clients 1,16,64] [--json FILE]

Acceptance: SpecDecode-Bench's records of Llama-3.1-8B, which hold for each output position what
EAGLE and what an n-gram look-up would have had accepted, of the same text: InstructCoder (edits of
code, which copy), GSM8K (which does not), and both mixed. Rows whose two lists come from different
runs are left out, for all arms. The records do not hold the text: how long a match is and where one
leads nowhere is modelled (`adaptive_spec.sim.drafters.hybrid`). Closed loops on an H100, Kmax 8.

Arms: `eagle` and `suffix` alone under goodput, each with its own cost; every fixed K of EAGLE; the
rules of TensorRT-LLM and Arctic at every K of 1 to 4, of which the best counts; goodput with both;
and foresight, which knows what each source has right. Ratios are to the better single source under
goodput. Means over the seeds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from pathlib import Path
from statistics import mean

from adaptive_spec.kernels import select_kernel
from adaptive_spec.sim.data_folder import ENVIRONMENT_VARIABLE, data_folder
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.oracle import consult
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate

MADE = Path(__file__).resolve().parents[1] / "out" / "two_sources"
"""Folder of the rows used; never committed."""
SOURCES = {
    "copying": ("instructcoder",),
    "prose": ("gsm8k",),
    "mixed": ("instructcoder", "gsm8k"),
}
KMAX = 8
TOKENS, WARM_UP = 3_000, 1_000
"""For each client."""
RULES = [f"lookup_rule:k={k},match=4" for k in range(1, 5)] + [
    f"lookup_rule:k={k},match=null" for k in range(1, 5)
]


def rows_of_one_text(data: Path, name: str) -> Path:
    """A file of the rows whose two lists are of one text."""
    source = data / "unlicensed" / f"acceptance_specdecodebench_llama31_8b_{name}.jsonl.gz"
    MADE.mkdir(parents=True, exist_ok=True)
    file = MADE / f"{name}.jsonl"
    with gzip.open(source, "rt", encoding="utf-8") as rows:
        kept = [row for row in rows if len((r := json.loads(row))["eagle"]) == len(r["ngram"])]
    file.write_text("".join(kept), encoding="utf-8")
    return file


def scores(files: tuple[str, ...], clients: int, seed: int) -> dict[str, float]:
    """Tokens per second by arm."""
    size = clients if clients > 1 else 2

    def scenario(drafter: str) -> Scenario:
        return Scenario(
            load=f"closed:{clients}",
            acceptance=files,
            drafter=drafter,
            hardware="h100-llama-8b",
            engine=EngineOptions(max_draft_tokens=KMAX),
            tokens=TOKENS * size,
            warmup_tokens=WARM_UP * size,
            seed=seed,
        )

    found = {
        drafter: simulate(scenario(drafter), parse_policy("goodput")).score(closed=True)
        for drafter in ("eagle", "suffix")
    }
    both = scenario("hybrid")
    oracles = consult(both)
    found["best fixed K"] = max(each.score(closed=True) for each in oracles.static)
    rules = [simulate(both, parse_policy(rule)).score(closed=True) for rule in RULES]
    found["TensorRT-LLM"], found["Arctic"] = max(rules[:4]), max(rules[4:])
    found["goodput"] = simulate(both, parse_policy("goodput")).score(closed=True)
    if oracles.foresight is not None:
        found["foresight"] = oracles.foresight.score(closed=True)
    return found


def main() -> None:
    """Print a line per set and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SOURCES))
    parser.add_argument("--clients", default="1,16,64")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    select_kernel("auto")
    data = Path(os.environ.get(ENVIRONMENT_VARIABLE) or data_folder())
    cells = []
    for name in arguments.sets.split(","):
        files = tuple(str(rows_of_one_text(data, each)) for each in SOURCES[name])
        for clients in map(int, arguments.clients.split(",")):
            runs = [scores(files, clients, seed) for seed in range(arguments.seeds)]
            speeds = {arm: mean(run[arm] for run in runs) for arm in runs[0]}
            single = max(speeds["eagle"], speeds["suffix"])
            ratios = {arm: round(speed / single, 3) for arm, speed in speeds.items()}
            ours = [run["goodput"] / max(run["eagle"], run["suffix"]) for run in runs]
            cells.append({"set": name, "clients": clients, "ratios": ratios})
            shown = "  ".join(f"{arm} {ratio:.3f}" for arm, ratio in ratios.items())
            print(f"{name:8} {clients:3}  {shown}  ({min(ours):.3f}-{max(ours):.3f})", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
