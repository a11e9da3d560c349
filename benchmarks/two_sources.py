"""Two sources of drafts, chosen online, against each alone and against fixed rules.

    python benchmarks/two_sources.py [--records own,others,text,public] [--sets mixed,...]
        [--clients 1,16,64] [--seeds 2] [--json FILE]

Acceptance, by position of the same text, of a drafter and of a look-up:

* `own`: the records that come with the package, of real text of six kinds, with the real lengths of
  matches; the look-up has a request's own prompt and answer, and the drafter's drafts are right
  where its target, the bench's, finds them likeliest after the same text;
* `others`: the same with a look-up in answers of other requests, too;
* `text`: as `own`, with the drafter's drafts held against the text, as those of the look-up are;
* `public`: SpecDecode-Bench's records of Llama-3.1-8B: InstructCoder (edits of code, which copy),
  GSM8K (which does not), and both mixed. Rows whose two lists come from different runs are left
  out, for all arms. They do not hold the text: how long a match is and where one leads nowhere is
  modelled (`adaptive_spec.sim.drafters.lookups`). Needs the project's data folder.

Closed loops on an H100, Kmax 8, with the cost of EAGLE's passes.

Arms: `eagle` (the drafter) and `suffix` alone under goodput, each with its own cost; the rules of
TensorRT-LLM and Arctic at every K of 1 to 4, of which the best counts; goodput with both; and
foresight, which knows what each source has right. Ratios are to the better single source under
goodput. Means over the seeds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from pathlib import Path
from statistics import mean

from adaptive_spec.policies.kernels import select_kernel
from adaptive_spec.sim.data_folder import ENVIRONMENT_VARIABLE, data_folder
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.oracle import foresee
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate

MADE = Path(__file__).resolve().parents[1] / "out" / "two_sources"
"""Folder of the rows used; never committed."""
PUBLIC = {
    "copying": ("instructcoder",),
    "prose": ("gsm8k",),
    "mixed": ("instructcoder", "gsm8k"),
}
OWN = {
    **{kind: f":{kind}" for kind in ("prose", "code", "edit", "quote", "agent", "json")},
    "mixed": "",
}
"""Endings of the record's name."""
KMAX = 8
TOKENS, WARM_UP = 3_000, 1_000
"""For each client."""
RULES = [f"lookup_rule:k={k},match=4" for k in range(1, 5)] + [
    f"lookup_rule:k={k},match=null" for k in range(1, 5)
]


def acceptance_of(records: str) -> dict[str, tuple[str, ...]]:
    """Acceptance data of each set."""
    if records == "public":
        data = Path(os.environ.get(ENVIRONMENT_VARIABLE) or data_folder())
        return {
            name: tuple(str(rows_of_one_text(data, each)) for each in parts)
            for name, parts in PUBLIC.items()
        }
    options = {"own": "+target", "others": "+target+others", "text": ""}[records]
    return {each: (f"record:two_sources{options}{ending}",) for each, ending in OWN.items()}


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
    rules = [simulate(both, parse_policy(rule)).score(closed=True) for rule in RULES]
    found["TensorRT-LLM"], found["Arctic"] = max(rules[:4]), max(rules[4:])
    found["goodput"] = simulate(both, parse_policy("goodput")).score(closed=True)
    foreseen = foresee(both)
    if foreseen is not None:
        found["foresight"] = foreseen.score(closed=True)
    return found


def main() -> None:
    """Print a line per set and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", default="own")
    parser.add_argument("--sets", default="", help="some of the sets; all by default")
    parser.add_argument("--clients", default="1,16,64")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    select_kernel("auto")
    sets = [
        (records, name, files)
        for records in arguments.records.split(",")
        for name, files in acceptance_of(records).items()
        if not arguments.sets or name in arguments.sets.split(",")
    ]
    cells = []
    for records, name, files in sets:
        for clients in map(int, arguments.clients.split(",")):
            runs = [scores(files, clients, seed) for seed in range(arguments.seeds)]
            speeds = {arm: mean(run[arm] for run in runs) for arm in runs[0]}
            single = max(speeds["eagle"], speeds["suffix"])
            ratios = {arm: round(speed / single, 3) for arm, speed in speeds.items()}
            ours = [run["goodput"] / max(run["eagle"], run["suffix"]) for run in runs]
            cell = {"records": records, "set": name, "clients": clients, "ratios": ratios}
            cells.append(cell)
            shown = "  ".join(f"{arm} {ratio:.3f}" for arm, ratio in ratios.items())
            print(
                f"{records:6} {name:7} {clients:3}  {shown}  ({min(ours):.3f}-{max(ours):.3f})",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
