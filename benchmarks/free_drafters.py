"""Free drafters (n-gram, suffix) against every fixed K: throughput from the first step on.

    python benchmarks/free_drafters.py run after.json [--policy goodput] [--seeds 2]
    python benchmarks/free_drafters.py show before.json after.json

Drafts that are copied from the text cost no accelerator time and are accepted in bursts: long
matches where the text repeats, nothing elsewhere. A policy that judges by the typical request or
step stops speculating although the mean pays.

The cells are made from public records: the n-gram lists of SpecDecode-Bench as they are, mixed, and
parted by how much a request copies; and hazards by position from the counters of vLLM 0.12 on four
benchmarks. Each runs at 1 to 64 clients on an H100 with an 8B model, Kmax 6. The bar is 0.99 of the
best fixed K, mean over the seeds, in every cell.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import itertools
import json
import math
import os
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import msgspec

from adaptive_spec.policies.kernels import select_kernel
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.sim.data_folder import ENVIRONMENT_VARIABLE, data_folder
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.scenario import Scenario, simulate

MADE = Path(__file__).resolve().parents[1] / "out" / "free_drafters"
"""Folder of the acceptance files made from the public records; never committed."""
ORACLES = MADE.with_name("oracles")
"""Folder of the fixed K's results, by scenario and behaviour of the simulator."""
KMAX = 6
GSM8K = "unlicensed/acceptance_specdecodebench_llama31_8b_gsm8k.jsonl.gz"
INSTRUCTCODER = "unlicensed/acceptance_specdecodebench_llama31_8b_instructcoder.jsonl.gz"
COUNTERS = "unlicensed/acceptance_vllm012_per_position_counters.csv"
MODELS = dict.fromkeys(("canitedit", "defects4j", "human-eval"), "L31-8B-I") | {
    "mtbench": "Qwen3-32B"
}
"""Model whose counters are taken, by benchmark."""
TOKENS = {1: 10_000, 4: 30_000, 16: 80_000, 64: 200_000}
"""Emitted tokens of a run by clients."""
BAR = 0.99
STATE_LOGIT, REQUEST_DEVIATION = 1.0, 0.7
"""How much passages and requests differ in cells made from counters, which hold means only."""


class Cell(NamedTuple):
    """Acceptance data and drafter of a row."""

    files: tuple[str, ...]
    drafter: str


def cells(folder: Path) -> dict[str, Cell]:
    """All rows by name; makes the files that they need."""
    MADE.mkdir(parents=True, exist_ok=True)
    gsm8k, coder = (_parts(folder / name) for name in (GSM8K, INSTRUCTCODER))
    lists = {
        "gsm8k": (gsm8k[0],),
        "instructcoder": (coder[0],),
        "both": (gsm8k[0], coder[0]),
        "gsm8k, copies little": (gsm8k[1],),
        "gsm8k, copies most": (gsm8k[2],),
        "instructcoder, copies little": (coder[1],),
        "little and most": (gsm8k[1], coder[2]),
    }
    found = {
        f"{name}: {drafter}": Cell(files, drafter)
        for name, files in lists.items()
        for drafter in ("ngram", "suffix")
    }
    with (folder / COUNTERS).open() as rows:
        for row in csv.DictReader(rows):
            if row["method"] in ("ngram", "suffix") and row["model"] == MODELS[row["benchmark"]]:
                found |= _from_counters(row)
    return found


def _parts(file: Path) -> tuple[str, str, str]:
    """The lists themselves, and the quarters of their requests that copy least and most."""
    with gzip.open(file) as lines:
        records = sorted(map(json.loads, lines), key=lambda record: mean(record["ngram"]))
    quarter = len(records) // 4
    made = []
    for part, chosen in (("little", records[:quarter]), ("most", records[-quarter:])):
        path = MADE / f"{records[0]['dataset']}-{part}.jsonl"
        path.write_text("\n".join(json.dumps(record) for record in chosen) + "\n")
        made.append(str(path))
    return str(file), made[0], made[1]


def _from_counters(row: dict[str, str]) -> dict[str, Cell]:
    """A hazard model of these counters, and the chance of a match that leads nowhere."""
    accepted = [int(each) for each in row["accepted_at_position_0_1_2..."].split() if each != "0"]
    steps = int(row["generation_tokens"]) - int(row["accepted_tokens"])
    hazards = [b / a for a, b in itertools.pairwise([steps, *accepted])]
    name = f"{row['benchmark']} {row['model']}"
    model = {
        "name": name,
        "position_logits": [math.log(h / (1.0 - h)) for h in hazards],
        "state_logits": [-STATE_LOGIT, STATE_LOGIT],
        "transitions": [[0.95, 0.05], [0.05, 0.95]],
        "request_deviation": REQUEST_DEVIATION,
        "output_tokens": [48, 96, 192, 320, 576, 1280],
    }
    path = MADE / f"{row['benchmark']}-{row['model']}-{row['method']}.json"
    path.write_text(json.dumps(model))
    match = (int(row["drafts"]) - accepted[0]) / (steps - accepted[0])
    drafter = f"{row['method']}:match={match:.3f}"
    return {f"{name}: {row['method']}": Cell((str(path),), drafter)}


def scenario(cell: Cell, clients: int, seed: int) -> Scenario:
    """A closed loop measured from the first step on."""
    return Scenario(
        load=f"closed:{clients}",
        acceptance=cell.files,
        drafter=cell.drafter,
        hardware="h100-llama-8b",
        engine=EngineOptions(max_draft_tokens=KMAX),
        seed=seed,
        tokens=TOKENS[clients],
        hide_confidence=True,
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
    text = msgspec.json.encode((mark, cell))
    file = ORACLES / f"{hashlib.blake2b(text, digest_size=12).hexdigest()}.json"
    if file.exists():
        return msgspec.json.decode(file.read_bytes(), type=list[float])
    found = [
        cell.run(StaticPolicy(StaticOptions(k=k)), f"static:k={k}").throughput_tok_s
        for k in range(KMAX + 1)
    ]
    ORACLES.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(msgspec.json.encode(found))
    part.replace(file)
    return found


def run(arguments: argparse.Namespace) -> None:
    """Every cell, held against its best fixed K, into a file."""
    folder = data_folder(arguments.data).resolve()
    os.environ[ENVIRONMENT_VARIABLE] = str(folder)
    select_kernel("auto")
    choice, mark = parse_policy(arguments.policy), fingerprint()
    ratios: dict[str, list[float]] = {}
    for name, cell in cells(folder).items():
        if arguments.only not in name:
            continue
        for clients, seed in itertools.product(TOKENS, range(arguments.seeds)):
            here = scenario(cell, clients, seed)
            result, fixed = simulate(here, choice), oracle(here, mark)
            ratio = result.throughput_tok_s / max(fixed)
            ratios.setdefault(f"{name} x {clients}", []).append(ratio)
            off = 1.0 - result.mode_fraction.get("on", 0.0)
            print(
                f"{ratio:.4f}  K {fixed.index(max(fixed))} at best gains "
                f"{max(fixed) / fixed[0] - 1.0:6.1%}, off {off:4.0%}: {name} x {clients} ({seed})",
                flush=True,
            )
    arguments.output.write_bytes(msgspec.json.encode(ratios) + b"\n")
    show([arguments.output])


def show(files: list[Path]) -> None:
    """Cells below the bar, mean and worst cell of each file."""
    for file in files:
        ratios = msgspec.json.decode(file.read_bytes(), type=dict[str, list[float]])
        means = {name: mean(each) for name, each in ratios.items()}
        worst = min(means, key=lambda name: means[name])
        below = [name for name in means if means[name] < BAR]
        print(
            f"{file.name}: {len(means)} cells, mean {mean(means.values()):.4f}, "
            f"{len(below)} below {BAR}, worst {means[worst]:.4f} at {worst}"
        )
        for name in sorted(below, key=lambda name: means[name]):
            print(f"    {means[name]:.4f}  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="run every cell")
    running.add_argument("output", type=Path)
    running.add_argument("--policy", default="goodput", help="NAME or NAME:key=value,...")
    running.add_argument("--seeds", type=int, default=2)
    running.add_argument("--only", default="", help="cells whose name holds this")
    running.add_argument("--data", type=Path, help="folder of public traces")
    showing = commands.add_parser("show", help="summarise runs")
    showing.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments)
    else:
        show(arguments.files)


if __name__ == "__main__":
    main()
