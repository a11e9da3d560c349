"""Output on a terminal: no escapes of others, any encoding, one line where there is no room."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adaptive_spec.commands.terminal import console, print_json, print_text
from tests.sim.recorded_steps import NAME, step_row, write_steps

ESCAPES = "\x1b[31mred\x1b]0;owned\x07\u202e\x9b31m"
CONTROLS = "\x1b\x07\x9b\u202e"


def called(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "adaptive_spec", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.run(command, **{"stdout": pipe, "stderr": pipe, "timeout": 60} | options)


def test_a_console_shows_no_controls_but_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    shown = console()
    shown.print(f"first {ESCAPES}\nsecond", markup=False)
    said = capsys.readouterr().out
    assert not set(CONTROLS) & set(said)
    assert said.startswith("first �[31mred�]0;owned")
    assert said.endswith("second\n")
    print_text(f"{ESCAPES}\n2")
    assert not set(CONTROLS) & set(capsys.readouterr().out)


def test_json_keeps_what_a_terminal_must_not_obey(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"label": f"{ESCAPES} \U000e0001 é 漢"}
    print_json(value)
    said = capsys.readouterr().out
    assert not set(CONTROLS) & set(said)
    assert json.loads(said) == value


@pytest.mark.parametrize("command", ["advise", "profile", "explain", "fit"])
def test_labels_and_paths_of_a_foreign_trace_are_shown_without_escapes(
    tmp_path: Path, command: str
) -> None:
    folder = tmp_path / f"trace{ESCAPES}"
    folder.mkdir()
    rows = [
        step_row(
            n,
            [f"{ESCAPES}{m}" for m in range(1 + n // 20 % 2)],
            [2] * (1 + n // 20 % 2),
            [1] * (1 + n // 20 % 2),
            reason=ESCAPES,
            why=ESCAPES,
        )
        for n in range(80)
    ]
    for row in rows:
        row |= {"task": [0] * len(row["ids"]), "task_names": {"0": ESCAPES}}
    write_steps(folder / NAME, *rows)
    done = called(command, folder, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)})
    said = (done.stdout + done.stderr).decode()
    assert said
    assert not set(CONTROLS) & set(said)


def test_a_terminal_that_is_not_utf8_gets_replacement_characters() -> None:
    latin = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"}
    options = ["--load", "closed:2", "--tokens", "200", "--policy", "static"]
    done = called("replay", *options, env=os.environ | latin)
    assert done.returncode == 0, done.stderr
    assert b"static" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("command", [["policies"], ["policies", "--json"], ["--help"], ["doctor"]])
def test_a_full_standard_output_is_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = called(*command, stdout=full)
    assert done.returncode == 2
    assert done.stderr.decode() == "error: standard output: No space left on device\n"
