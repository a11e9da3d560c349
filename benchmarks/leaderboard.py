"""What `benchmarks/leaderboard.yaml` needs, and what is made of its results.

python benchmarks/leaderboard.py tune                     # profiles and tuned values of baselines
adaptive-spec sweep benchmarks/leaderboard.yaml --output out/leaderboard
python benchmarks/leaderboard.py write out/leaderboard    # its section of docs/mechanisms.md
python benchmarks/leaderboard.py check out/leaderboard    # its demands only, exit status 1: missed
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

if not __package__:  # run as a file
    # In place of this folder, where `leaderboard` would be found under a second name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.sim.data_folder import ENVIRONMENT_VARIABLE, data_folder
from adaptive_spec.sim.sweep.results import read_results
from benchmarks.leaderboard.checks import check
from benchmarks.leaderboard.document import document, replaced
from benchmarks.leaderboard.tune import tune

ROOT = Path(__file__).resolve().parents[1]
CONFIG = Path(__file__).with_suffix(".yaml")
FOLDER = Path(__file__).with_suffix("")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    tuning = commands.add_parser("tune", help="write cost profiles and tuned values")
    tuning.add_argument("--data", type=Path, help="folder of public traces")
    for name, about in (("write", "write the document"), ("check", "print the demands")):
        command = commands.add_parser(name, help=about)
        command.add_argument("results", type=Path, help="directory of the sweep")
        command.add_argument("--output", type=Path, default=ROOT / "docs" / "mechanisms.md")
    arguments = parser.parse_args()
    if arguments.command == "tune":
        os.environ[ENVIRONMENT_VARIABLE] = str(data_folder(arguments.data).resolve())
        tune(CONFIG, FOLDER)
        return 0
    results = read_results(arguments.results)
    demands = check(results)
    if arguments.command == "write":
        page = arguments.output.read_text(encoding="utf-8")
        page = replaced(page, document(results, demands))
        arguments.output.write_text(page, encoding="utf-8")
        print(arguments.output)
    for demand in demands:
        print(demand.line)
    return 1 if any(demand.passed is False for demand in demands) else 0


if __name__ == "__main__":
    sys.exit(main())
