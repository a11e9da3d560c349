"""`adaptive-spec advise` against a real vLLM: predicted and measured gains over no speculation.

    python benchmarks/advise_check.py [--trace TRACE] [--results JSON] [--output FILE]

The trace is what `vllm_cpu.py --record` packed with random K and depth, the results are what
`vllm_cpu.py` measured for the same traffic in other runs. Gains are compared, not tokens per
second: the machine's speed drifts from run to run, so each cell is held against no speculation of
its own round.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.sim.advice.advice import advise

HERE = Path(__file__).resolve().parent
TRACE = HERE / "results" / "vllm_cpu-costs.jsonl.gz"
RESULTS = HERE / "results" / "vllm_cpu-mixed.json"
ARMS = {
    **{f"static{k}": f"K = {k}" for k in range(1, 7)},
    "schedule": "vLLM table",
    "ours": "goodput",
}
"""Set-up of the advice by arm of the benchmark."""


def compare(trace: Path, results: dict[str, Any], *, resamplings: int) -> dict[str, Any]:
    """Return predicted and measured gain of each arm, by load and as the mean over loads."""
    advice, _ = advise([trace], drafter="draft_model", resamplings=resamplings)
    none = advice.predictions[0]
    by_name = {each.name: each for each in advice.predictions}
    measured = {
        (row["concurrency"], row["arm"]): row["over_none"]["middle"] for row in results["table"]
    }
    arms = []
    for arm, name in ARMS.items():
        pairs = {}
        for place, load in enumerate(advice.loads):
            if (load.clients, arm) in measured:
                predicted = by_name[name].by_load[place].value / none.by_load[place].value
                pairs[load.clients] = (predicted, measured[load.clients, arm])
        own, real = (mean(pair[side] for pair in pairs.values()) for side in (0, 1))
        errors = {load: round(a / b - 1.0, 4) for load, (a, b) in pairs.items()}
        arms.append(
            {
                "set-up": name,
                "predicted": round(own, 4),
                "measured": round(real, 4),
                "error": round(own / real - 1.0, 4),
                "error_by_load": errors,
                "interval": [by_name[name].gain.low, by_name[name].gain.high],
            }
        )
    return {
        "measured": {key: results[key] for key in ("date", "command", "condition")},
        "verdict": advice.verdict,
        "within_5_percent": sum(abs(arm["error"]) <= 0.05 for arm in arms),
        "set_ups": len(arms),
        "median_error_of_a_cell": median(
            abs(error) for arm in arms for error in arm["error_by_load"].values()
        ),
        "arms": arms,
        "lines": {each.name: each.lines for each in advice.predictions},
    }


def main() -> int:
    """Compare, print, write."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--resamplings", type=int, default=4)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    given = parser.parse_args()
    results = json.loads(given.results.read_bytes())
    found = compare(given.trace, results, resamplings=given.resamplings)
    text = json.dumps(found, indent=1)
    print(text)
    if given.output is not None:
        given.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
