"""How long `import adaptive_spec` takes in a fresh interpreter: `python benchmarks/import_time.py`.

Prints the median over runs, with numpy and msgspec (which every engine has loaded anyway) and
beyond them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

TIMED = """
import time
{before}
began = time.perf_counter()
import adaptive_spec
print(time.perf_counter() - began)
"""


def import_seconds(before: str) -> float:
    """Seconds of one import, after the statement `before`."""
    command = [sys.executable, "-c", TIMED.format(before=before)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Time `import adaptive_spec`.")
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    for name, before in (("in all", ""), ("beyond numpy and msgspec", "import numpy, msgspec")):
        seconds = [import_seconds(before) for _ in range(runs)]
        median, slowest = statistics.median(seconds), max(seconds)
        print(f"{name}: median {median * 1e3:.0f} ms, slowest {slowest * 1e3:.0f} ms, {runs} runs")


if __name__ == "__main__":
    main()
