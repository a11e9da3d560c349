"""What the results of vllm_cpu.py say together.

    python benchmarks/vllm_cpu_summary.py [FOLDER]     # default: benchmarks/results/vllm_cpu-sweep

One ratio for each condition and number of clients: the median of its repeats. Printed are their
geometric mean, its standard error, the lowest, and how many there are. Runs where vllm_cpu.py does.

/ none    over no speculation
/ best    over the static K that came out best: too strict, since the luckiest is taken
/ tuned   over the static K that was best in the other repeats of the same cell
/ one K   over the static K that is best for all workloads of that draft, sampling and load
          together, which is what a table of K by batch size can be set to
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    # In place of this folder, where `vllm_cpu` would be found under a second name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.vllm_cpu.errors import BenchmarkError
from benchmarks.vllm_cpu.summary import read, text

RESULTS = Path(__file__).resolve().parent / "results" / "vllm_cpu-sweep"


def main(arguments: list[str]) -> int:
    """Print the summary."""
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return int(len(arguments) > 1)
    folder = Path(arguments[0]) if arguments else RESULTS
    try:
        measured = read(path for path in folder.glob("vllm_cpu-*.json"))
        if not measured:
            raise BenchmarkError(f"{folder}: no results of vllm_cpu.py there")
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(text(measured), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
