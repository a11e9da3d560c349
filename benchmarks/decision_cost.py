"""Time of a decision in this working tree over that of a commit, in the simulator.

    python benchmarks/decision_cost.py [--base COMMIT] [--policies goodput,bandit,...]

Each build simulates the same closed loops in a process of its own, the commit from a folder that it
is exported to, and they take turns, so that what else the machine does meets both alike. Figures
are microseconds of plan and observe per step, medians of a turn, the least of all turns. Whether
plans change, `scripts/decision_hashes.py` tells.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS, WARM_UP = 400, 200


def work() -> None:
    """Simulate what each line of the input asks for; print the median microseconds."""
    from adaptive_spec.sim.engine.options import EngineOptions
    from adaptive_spec.sim.policy_choice import parse_policy
    from adaptive_spec.sim.scenario import Scenario, simulate

    for line in sys.stdin:
        policy, batch, confidence = json.loads(line)
        scenario = Scenario(
            load=f"closed:{batch}",
            acceptance=("model:good",),
            confidence_auc=0.85 if confidence else None,
            drafter="eagle",
            hardware="h100-llama-8b",
            engine=EngineOptions(max_draft_tokens=6),
            tokens=3 * batch * (STEPS + WARM_UP),
            warmup_steps=WARM_UP,
        )
        print(simulate(scenario, parse_policy(policy)).decision_us.p50, flush=True)


class Build:
    """A process that simulates with one build."""

    def __init__(self, tree: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        )

    def microseconds(self, policy: str, batch: int, confidence: bool) -> float:
        """Return the median time of a decision."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([policy, batch, confidence]) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def exported(commit: str, folder: str) -> Path:
    """Export a commit's tree into a folder."""
    command = ["git", "archive", commit, "adaptive_spec", "policies", "adapters", "sim"]
    archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return Path(folder)


def main() -> None:
    """Print a line per policy, batch size, and with confidence or without."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--base", default="HEAD", help="commit to compare with")
    parser.add_argument("--policies", default="goodput,bandit,regression,static")
    parser.add_argument("--batches", default="1,16,64,256")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return
    with tempfile.TemporaryDirectory() as folder:
        builds = [Build(exported(given.base, folder)), Build(ROOT)]
        for policy in given.policies.split(","):
            for confidence in (False, True):
                for batch in map(int, given.batches.split(",")):
                    cell = policy, batch, confidence
                    turns = [
                        [each.microseconds(*cell) for each in builds] for _ in range(given.turns)
                    ]
                    base, ours = map(min, zip(*turns, strict=True))
                    what = f"{policy:10} {'confidence' if confidence else '':10} {batch:5}"
                    print(f"{what} {base:7.0f} -> {ours:7.0f} us {ours / base:.2f}", flush=True)


if __name__ == "__main__":
    main()
