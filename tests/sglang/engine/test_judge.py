"""SGLang's real scheduler on the clock of a modelled H100."""

from pathlib import Path

import pytest

from benchmarks.judge.arms import GOODPUT, NONE, SGLANG_RULE
from benchmarks.judge.device import DEVICES
from benchmarks.judge.real.processes import Group, work_off
from benchmarks.judge.real.runs import Run, RunKey
from benchmarks.judge.real.traffic import Load
from benchmarks.judge.real.worker import Task
from benchmarks.judge.setup import SGLANG, Setup

pytestmark = [pytest.mark.engine, pytest.mark.long]

DEVICE = DEVICES["h100-8b"]
LOAD = Load(name="8", pieces=((8, 48),))
STATIC = ("k4",)
Runs = dict[str, Run]


@pytest.fixture(scope="module")
def runs(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs by arm."""
    folder = tmp_path_factory.mktemp("judge")
    wanted = []
    for method, arms in ((NONE, (NONE,)), ("eagle", (*STATIC, SGLANG_RULE, GOODPUT))):
        setup = Setup(
            models=str(models["target"].parent), engine=SGLANG, method=method, most_requests=16
        )
        tasks = []
        for arm in arms:
            learns = f"{arm}-warm" if arm == GOODPUT else ""
            key = RunKey(engine=SGLANG, method=method, arm=arm, load=LOAD.name)
            tasks.append(Task(key=key, device=DEVICE, load=LOAD, warm=learns))
        wanted.append(Group(setup, tasks))
    runs = work_off(wanted, folder)
    return {run.key.arm: run for run in runs}


def test_every_arm_emits_the_tokens_of_no_speculation(runs: Runs) -> None:
    expected = runs[NONE].sums
    assert len(expected) == LOAD.requests
    for name, run in runs.items():
        assert run.sums[: len(expected)] == expected, name


def test_a_static_arm_runs_its_k_and_its_passes(runs: Runs) -> None:
    decoding = [work for work in runs["k4"].steps if work.requests]
    assert {(work.least_k, work.most_k, work.passes) for work in decoding} == {(4, 4, 4)}


def test_sglangs_own_rule_changes_k(runs: Runs) -> None:
    assert len({work.most_k for work in runs[SGLANG_RULE].steps if work.requests}) > 1


def test_nothing_of_ours_failed(runs: Runs) -> None:
    assert {run.faults for run in runs.values()} == {0}
    assert runs["goodput"].modes
