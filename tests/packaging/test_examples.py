"""The examples for researchers run as they stand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FEWER = "1000 * count", "200 * count"
"""Tokens of a run: enough for a picture that nobody looks at."""


def test_two_policies_are_compared_in_twenty_lines(tmp_path: Path) -> None:
    text = (EXAMPLES / "compare_two_policies.py").read_text()
    code = text.split('"""')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    script = tmp_path / "compare.py"
    script.write_text(text.replace(*FEWER))
    command = [sys.executable, str(script), "record:good_t0.8", str(tmp_path / "two.png")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rates = [float(line.split(": ")[1].split()[0]) for line in done.stdout.splitlines()]
    assert len(rates) == 8
    assert all(rate > 0 for rate in rates)
    assert (tmp_path / "two.png").read_bytes().startswith(b"\x89PNG")


def test_the_notebook_runs_from_the_first_cell_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    book = json.loads((EXAMPLES / "compare_two_policies.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace(*FEWER), names)
    for axis in (names["rate"], names["depth"]):
        assert [len(line.get_ydata()) for line in axis.get_lines()] == [4, 4]  # type: ignore[attr-defined]
