"""Every file of benchmarks/ has a line in its README, which says what it serves."""

import re
import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_every_benchmark_says_what_it_serves() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "."], cwd=FOLDER, capture_output=True, text=True, check=True
    ).stdout.split()
    here = {Path(file).parts[0] for file in tracked} - {"README.md"}
    listed = set()
    for row in re.findall(r"^\| (`.*?`) \|", (FOLDER / "README.md").read_text(), re.MULTILINE):
        names = re.findall(r"`(.*?)`", row)
        stem = names[0].partition(".")[0]
        listed |= {(stem + n if n.startswith(".") else n).rstrip("/") for n in names}
    assert here == listed
