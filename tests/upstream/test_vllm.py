"""vLLM alone still does what our reports say; where a check fails, a report is out of date.

Each check is a program of its own, which states what was seen and asserts it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.long]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ALONE = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}


def check(program: str, folder: Path) -> None:
    command = [sys.executable, HERE / program, folder]
    done = subprocess.run(command, env=os.environ | ALONE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize("program", ["drafter_stops_for_all.py", "ngram_scheduling.py"])
def test_a_report_holds(program: str, tmp_path: Path) -> None:
    check(program, tmp_path)


def test_the_report_on_several_thinking_sections_holds(tmp_path: Path) -> None:
    build = [sys.executable, ROOT / "benchmarks/bench_pair/build.py", tmp_path]
    subprocess.run([*build, "--only", "target", "draft"], check=True, capture_output=True)
    check("thinking_budget.py", tmp_path)
