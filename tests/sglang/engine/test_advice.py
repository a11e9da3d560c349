"""The trace of a real SGLang is advised on, and the lines to paste start a real SGLang."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import KMAX, Engine, arguments, command_line, environment
from traffic import Job, mixed_lengths

from adaptive_spec.sim.advice import setups
from adaptive_spec.sim.advice.advice import predict
from adaptive_spec.sim.hardware.from_trace import read_timed_steps
from adaptive_spec.sim.step_trace import find_trace

pytestmark = pytest.mark.engine

DRAFTERS = {"EAGLE": "eagle", "STANDALONE": "draft_model", "NGRAM": "ngram"}
FLAGS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")


@pytest.fixture(scope="module")
def trace(shelf: Any, cycle: dict[str, Any], reference: Any) -> Path:
    """The trace of K drawn anew for each step, at one request at a time and at many."""
    del reference  # its engine comes first, so that the next one lasts until `test_same_output.py`
    engine = shelf.get("EAGLE", adaptive=cycle)
    jobs = [replace(job, name=f"traced-{job.name}") for job in mixed_lengths()]
    for job in jobs[:5]:
        engine.run([replace(job, name=f"{job.name}-alone")])
    engine.run(jobs)
    return Path(cycle["trace"]["directory"])


def test_prompts_are_recorded_in_batches_of_their_own(trace: Path) -> None:
    steps = list(find_trace(trace).steps())
    batches = [batch for step in steps for batch in step.prompt_batches]
    assert sum(requests for requests, _, _ in batches) >= 20
    assert all(tokens > 0 and seconds > 0 for _, tokens, seconds in batches)
    assert all(step.prefill_tokens == 0 for step in steps)
    assert "batches of their own" in read_timed_steps(trace).note


@pytest.mark.long  # a trace is simulated: tests/sim/advice has such ones in every run
def test_advice_predicts_every_k(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This machine has other work: how well the times fit is not what is tested.
    monkeypatch.setattr("adaptive_spec.sim.hardware.from_trace.LARGEST_FIT_ERROR", 10.0)
    found = predict(trace, engine="sglang", tokens=200, resamplings=2).conclude()
    names = {each.name for each in found.predictions}
    assert {setups.NO_SPECULATION, setups.OURS, *(f"K = {k}" for k in range(1, KMAX + 1))} <= names
    assert dict(found.verdict.answers)["Prompts"].startswith("they ran in batches of their own")


PARSE = """
import json, sys
from sglang.srt.server_args import prepare_server_args
for words in json.loads(sys.argv[2]):
    args = prepare_server_args(words)
    print(json.dumps([getattr(args, name) for name in sys.argv[1].split()]))
"""


def pasted(models: dict[str, Path], folder: Path, algorithm: str, line: str) -> dict[str, Any]:
    """Options of a server without any flag of its K, and those of a line to paste."""
    options = arguments(models, folder, algorithm)
    for name in [*FLAGS, "speculative_adaptive", "speculative_adaptive_config"]:
        options.pop(name, None)
    words = shlex.split(line)
    for flag, value in zip(words[::2], words[1::2], strict=True):
        options[flag.removeprefix("--").replace("-", "_")] = int(value)
    return options


@pytest.mark.long
def test_a_pasted_line_is_a_chain_of_k_drafts(models: dict[str, Path], tmp_path: Path) -> None:
    lines = []
    for algorithm, drafter in DRAFTERS.items():
        [line] = setups.static(2, "sglang", drafter).lines
        lines.append(command_line(pasted(models, tmp_path, algorithm, line)))
    command = [sys.executable, "-c", PARSE, " ".join(FLAGS), json.dumps(lines)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    eagle, standalone, ngram = map(json.loads, done.stdout.splitlines()[-3:])
    assert eagle == standalone == [2, 1, 3]
    assert ngram[-1] == 3


@pytest.mark.long
def test_a_pasted_line_starts_a_server(models: dict[str, Path], tmp_path: Path) -> None:
    [line] = setups.static(2, "sglang").lines
    engine = Engine(pasted(models, tmp_path, "EAGLE", line), environment(), tmp_path / "engine")
    try:
        answers = engine.run([Job("one", "the quick brown fox", {"max_new_tokens": 8})])
        assert len(answers["one"].tokens) == 8
    finally:
        engine.close()
