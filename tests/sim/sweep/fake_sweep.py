"""A tiny sweep: fake acceptance lists, two loads, one of them on the clock, two seeds."""

import json
import random
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from adaptive_spec.sim.commands.sweep import sweep

CONFIG = """\
policies:
  - off
  - static:k=2
  - {policy: "goodput:prior_hazard=0.5", name: ours}
acceptance: {made-up: acceptance.jsonl}
drafters: [eagle]
hardware: [h100-llama-8b]
loads: ["closed:2", {load: "poisson:20", tokens: 300}]
seeds: 2
engine: {max_draft_tokens: 3}
tokens: 250
"""
POLICIES = ("off", "static:k=2", "ours")
CELLS = 4
RUNS = CELLS * (1 + len(POLICIES))

_app = typer.Typer()
_app.command()(sweep)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(_app, [str(argument) for argument in arguments])


def write_sweep(folder: Path, config: str = CONFIG) -> Path:
    draw = random.Random(7)
    rows = [
        {
            "id": number,
            "dataset": "made-up",
            "prompt_len": draw.randint(5, 60),
            "gen_len": 40,
            "eagle": [1 + min(int(draw.expovariate(0.6)), 6) for _ in range(40)],
            "ngram": [1] * 40,
        }
        for number in range(12)
    ]
    (folder / "acceptance.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "config.yaml"
    path.write_text(config)
    return path


def without_timing(folder: Path) -> dict:
    """results.json without what depends on the machine that simulates."""
    results = json.loads((folder / "results.json").read_text())
    for row in results["rows"]:
        assert row["result"].pop("decision_us")["p50"] > 0
        del row["result"]["simulation_seconds"]
    return results
