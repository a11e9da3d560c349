"""docs/will_it_work.md says "executed" only where a test ran: each cell has tests that exist."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import compatibility  # noqa: E402
from compatibility import ABSENT, CHECKED, EXECUTED, REFUSED, SHADOW, TESTS  # noqa: E402

IN_ENVIRONMENTS = {"vLLM": "0.32.0", "SGLang": "0.5.23"}
"""The versions whose environments run every test; of other versions, only those so marked."""

LINES = [
    line
    for table in (compatibility.VLLM, compatibility.SGLANG, compatibility.TENSORRT_LLM)
    for line in compatibility.lines(table)
]
EXECUTED_CELLS = [
    (line, method)
    for line in LINES
    for method, cell in zip(compatibility.METHODS[line.engine], line.cells, strict=True)
    if cell == EXECUTED
]


def behind(line: compatibility.Line, method: str) -> set[str]:
    return set(TESTS[line.route if line.engine == "vLLM" else line.engine, method])


def collected(*options: str) -> set[str]:
    files = sorted({test.partition("::")[0] for tests in TESTS.values() for test in tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return set(done.stdout.splitlines())


@pytest.mark.slow
def test_each_executed_cell_names_tests_that_exist_and_run_on_that_version() -> None:
    everywhere, anywhere = collected("-m", "every_version"), collected()
    assert len(EXECUTED_CELLS) > 20
    for line, method in EXECUTED_CELLS:
        there = anywhere if line.version == IN_ENVIRONMENTS[line.engine] else everywhere
        missing = behind(line, method) - there
        assert not missing, f"{line.engine} {line.version}, {line.route}, {method}: {missing}"


def test_no_test_stands_behind_a_method_that_is_not_executed() -> None:
    named = {
        (line.route if line.engine == "vLLM" else line.engine, m) for line, m in EXECUTED_CELLS
    }
    assert named == set(TESTS)


def test_each_method_that_an_adapter_lists_has_a_column() -> None:
    for table in (compatibility.VLLM, compatibility.SGLANG):
        listed = {method for row in table.rows for method in row.methods}
        assert listed <= set(compatibility.METHODS[table.engine])


@pytest.mark.parametrize(
    ("version", "route", "method", "state"),
    [
        ("0.31.0", "V1", "hybrid models", SHADOW),
        ("0.33.0", "V1", "hybrid models", CHECKED),
        ("0.30.0", "V2", "draft_model", ABSENT),
        ("0.31.0", "V2", "ngram", ABSENT),
        ("0.33.0", "V2", "ngram", CHECKED),
        ("0.26.0", "V1", "mtp", CHECKED),
        ("0.33.0", "V1", "medusa", ABSENT),
        ("0.5.23", "policy protocol", "DSPARK", REFUSED),
    ],
)
def test_what_is_not_executed_is_told_apart(
    version: str, route: str, method: str, state: str
) -> None:
    [line] = [one for one in LINES if one.version == version and one.route.endswith(route)]
    assert line.cells[compatibility.METHODS[line.engine].index(method)] == state
