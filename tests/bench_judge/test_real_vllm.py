"""A real vLLM on the clock of a modelled H100: what a script cannot show."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec
import pytest

from benchmarks.bench_pair.build import build
from benchmarks.judge.device import DEVICES
from benchmarks.judge.real.processes import Group, work_off
from benchmarks.judge.real.runs import Run, RunFile, RunKey
from benchmarks.judge.real.setup import V1_ASYNC, Setup
from benchmarks.judge.real.traffic import Load
from benchmarks.judge.real.worker import Task

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is not installed"),
]

DEVICE = DEVICES["h100-8b"]
METHODS = "draft_model", "ngram"
LOADS = Load(name="4", pieces=((4, 12),)), Load(name="16", pieces=((16, 32),))
STATIC = ("k3",)
Runs = dict[tuple[str, str, str], Run]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs by drafter, arm and load; `again` is a second policy that begins with nothing."""
    folder = tmp_path_factory.mktemp("judge")
    models = build(folder / "models", ("target", "draft"))["target"].parent
    wanted = []
    for method in METHODS:
        setup = Setup(
            models=str(models),
            engine="vllm-v1",
            method=method,
            most_requests=32,
        )
        tasks = [
            Task(key=RunKey(method=method, arm=arm, load=load.name), device=DEVICE, load=load)
            for arm in ("k0", *STATIC)
            for load in LOADS
        ]
        for load in LOADS:
            key = RunKey(method=method, arm="goodput", load=load.name)
            tasks.append(Task(key=key, device=DEVICE, load=load, warm="goodput-warm"))
        if method == METHODS[0]:
            again = RunKey(method=method, arm="goodput", load=LOADS[0].name, device="again")
            tasks.append(Task(key=again, device=DEVICE, load=LOADS[0], warm="goodput-warm"))
        wanted.append(Group(setup, tasks))
    wanted.append(scheduled_ahead(models))
    runs = work_off(wanted, folder, workers=2)
    return {(r.key.method, r.key.arm + r.key.device, r.key.load): r for r in runs}


def scheduled_ahead(models: Path) -> Group:
    """The same with asynchronous scheduling."""
    setup = Setup(
        models=str(models),
        engine=V1_ASYNC,
        method=METHODS[0],
        most_requests=32,
    )
    tasks = [
        Task(
            key=RunKey(engine=V1_ASYNC, method=METHODS[0], arm=arm, device=device, load="4"),
            device=DEVICE,
            load=LOADS[0],
            warm="goodput-warm" if arm == "goodput" else "",
        )
        for arm, device in (("k3", "-ahead"), ("k3", "-ahead-again"), ("goodput", "-ahead"))
    ]
    return Group(setup, tasks)


@pytest.mark.parametrize("load", [load.name for load in LOADS])
def test_every_arm_emits_the_same_tokens(runs: Runs, load: str) -> None:
    expected = runs["ngram", "k0", load].sums
    for (_, _, name), run in runs.items():
        if name == load:
            assert run.sums[: len(expected)] == expected, run.key


def test_the_same_seed_runs_the_same_steps(runs: Runs) -> None:
    method, load = METHODS[0], LOADS[0].name
    for arm in ("goodput", "goodput-warm"):
        assert runs[method, arm, load].steps == runs[method, f"{arm}again", load].steps


def test_an_asynchronous_engine_schedules_ahead(runs: Runs) -> None:
    at_once, ahead = runs["draft_model", "k3", "4"], runs["draft_model", "k3-ahead", "4"]
    # A request that ends is often in the next step already, where it emits nothing.
    decoded, decoded_at_once = (
        sum(work.requests for work in run.steps) for run in (ahead, at_once)
    )
    assert decoded > decoded_at_once
    assert {work.passes for work in ahead.steps if work.requests} == {3}


def test_a_step_scheduled_ahead_is_no_part_of_the_next_run(runs: Runs) -> None:
    first, second = runs["draft_model", "k3-ahead", "4"], runs["draft_model", "k3-ahead-again", "4"]
    assert first.steps == second.steps


def test_passes_are_charged_as_they_ran(runs: Runs) -> None:
    decoding = [work for work in runs["draft_model", "k3", "4"].steps if work.requests]
    assert {work.passes for work in decoding} == {3}
    kept_in_step = [work for work in runs["draft_model", "k0", "4"].steps if work.requests]
    assert {work.passes for work in kept_in_step} == {1}


def test_nothing_of_ours_failed(runs: Runs) -> None:
    assert {run.faults for run in runs.values()} == {0}


def test_a_run_file_goes_on_after_a_kill(runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    file = RunFile(path)
    whole, cut = list(runs.values())[:2]
    file.add(whole)
    path.write_bytes(path.read_bytes() + msgspec.json.encode(cut)[:50])
    assert RunFile(path).keys == {whole.key}
