"""Summary of the results of vllm_cpu.py over all conditions.

    python benchmarks/vllm_cpu_summary.py [PATH] [--series NAME]
    python benchmarks/vllm_cpu_summary.py FOLDER --series NAME --collect FILE

PATH is a folder of result files or a collection; the default is the collection that
docs/measured.md quotes, series `sweep`. `--collect` adds the results of a folder to a collection,
where they replace the series of that name.

One ratio for each condition and number of clients: the median of its repeats. The command prints
their geometric mean, its standard error, the lowest ratio and their number. It runs in the
environment of vllm_cpu.py.

/ none    over no speculation
/ best    over the static K that came out best: too strict, since the luckiest is taken
/ tuned   over the static K that was best in the other repeats of the same cell
/ one K   over the static K that is best for all workloads of that draft, sampling and load
          together: the K to which a table of K by batch size can be set
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a file
    # In place of this folder, where `vllm_cpu` would be found under a second name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.vllm_cpu.collection import collect, save
from benchmarks.vllm_cpu.errors import BenchmarkError
from benchmarks.vllm_cpu.summary import read, text

RESULTS = Path(__file__).resolve().parent / "results" / "vllm_cpu-sweep.json"
SWEEP = "sweep"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the summary, or add to a collection."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, nargs="?", help="folder or collection")
    parser.add_argument("--series", help="of a collection")
    parser.add_argument("--collect", type=Path, metavar="FILE", help="add to this collection")
    given = parser.parse_args(arguments)
    path, series = given.path or RESULTS, given.series
    if given.path is None and series is None:
        series = SWEEP
    files = sorted(path.glob("vllm_cpu-*.json")) if path.is_dir() else [path]
    try:
        if given.collect is not None:
            _add(given.collect, files, series or SWEEP)
            return 0
        measured = read((file for file in files if file.is_file()), series)
        if not measured:
            raise BenchmarkError(f"{path}: no results of vllm_cpu.py there")
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(text(measured), end="")
    return 0


def _add(collection: Path, files: Sequence[Path], series: str) -> None:
    before = json.loads(collection.read_text(encoding="utf-8")) if collection.exists() else []
    kept = [entry for entry in before if entry["series"] != series]
    save(collection, [*kept, *collect(files, series)])


if __name__ == "__main__":
    sys.exit(main())
