"""A real vLLM on the clock of a modelled H100: what a script cannot show."""

import importlib.util

import pytest

from benchmarks.bench_pair.build import build
from benchmarks.judge.device import DEVICES
from benchmarks.judge.real.processes import Group, work_off
from benchmarks.judge.real.runs import Run, RunKey
from benchmarks.judge.real.traffic import Load
from benchmarks.judge.real.worker import Task
from benchmarks.judge.setup import V1_ASYNC, Setup

pytestmark = [
    pytest.mark.engine,
    pytest.mark.long,  # what it shares with servers, tests/vllm checks every time
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is not installed"),
]

DEVICE = DEVICES["h100-8b"]
METHOD = "draft_model"
LOAD = Load(name="4", pieces=((4, 12),))
Runs = dict[str, Run]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs by arm; `again` is a second run that begins with nothing, `ahead` is asynchronous."""
    folder = tmp_path_factory.mktemp("judge")
    models = str(build(folder / "models", ("target", "draft"))["target"].parent)
    groups = [
        group(models, "vllm-v1", ("k0", ""), ("k3", ""), ("goodput", ""), ("goodput", "-again")),
        group(models, V1_ASYNC, ("k3", "-ahead"), ("k3", "-ahead-again"), ("goodput", "-ahead")),
    ]
    return {run.key.arm + run.key.device: run for run in work_off(groups, folder, workers=2)}


def group(models: str, engine: str, *arms: tuple[str, str]) -> Group:
    setup = Setup(models=models, engine=engine, method=METHOD, most_requests=32)
    return Group(
        setup,
        [
            Task(
                key=RunKey(engine=engine, method=METHOD, arm=arm, load=LOAD.name, device=device),
                device=DEVICE,
                load=LOAD,
                warm="goodput-warm" if arm == "goodput" else "",
            )
            for arm, device in arms
        ],
    )


def test_every_arm_emits_the_same_tokens(runs: Runs) -> None:
    expected = runs["k0"].sums
    for run in runs.values():
        assert run.sums[: len(expected)] == expected, run.key


def test_the_same_seed_runs_the_same_steps(runs: Runs) -> None:
    for arm in ("goodput", "goodput-warm"):
        assert runs[arm].steps == runs[f"{arm}-again"].steps


def test_an_asynchronous_engine_schedules_ahead(runs: Runs) -> None:
    at_once, ahead = runs["k3"], runs["k3-ahead"]
    # A request that ends is often in the next step already, where it emits nothing.
    decoded, decoded_at_once = (
        sum(work.requests for work in run.steps) for run in (ahead, at_once)
    )
    assert decoded > decoded_at_once
    assert {work.passes for work in ahead.steps if work.requests} == {3}


def test_a_step_scheduled_ahead_is_no_part_of_the_next_run(runs: Runs) -> None:
    first, second = runs["k3-ahead"], runs["k3-ahead-again"]
    assert first.steps == second.steps


def test_passes_are_charged_as_they_ran(runs: Runs) -> None:
    decoding = [work for work in runs["k3"].steps if work.requests]
    assert {work.passes for work in decoding} == {3}
    kept_in_step = [work for work in runs["k0"].steps if work.requests]
    assert {work.passes for work in kept_in_step} == {1}


def test_nothing_of_ours_failed(runs: Runs) -> None:
    assert {run.faults for run in runs.values()} == {0}
