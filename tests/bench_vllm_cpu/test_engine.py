from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
import pytest

from benchmarks.bench_pair.names import KINDS
from benchmarks.vllm_cpu.engine import MTP, OUTPUT_TOKENS, Load, Setup, Tally, first_length
from benchmarks.vllm_cpu.engines import environment, setup_for

LOAD = Load(workload="mixed", temperature=0.8, concurrency=4, seed=3, seconds=1.0)


def test_a_cycle_of_the_mixed_workload_has_every_kind_once() -> None:
    jobs = list(islice(LOAD.jobs(), 3 * LOAD.cycle))
    for start in range(0, len(jobs), LOAD.cycle):
        assert {job.kind for job in jobs[start : start + LOAD.cycle]} == set(KINDS)


def test_a_kind_alone_is_alone() -> None:
    alone = msgspec.structs.replace(LOAD, workload="json")
    assert alone.cycle == 1
    assert {job.kind for job in islice(alone.jobs(), 7)} == {"json"}


def test_the_seed_decides_the_requests() -> None:
    same = [job.prompt for job in islice(LOAD.jobs(), 10)]
    other = msgspec.structs.replace(LOAD, seed=4)
    assert same == [job.prompt for job in islice(LOAD.jobs(), 10)]
    assert same != [job.prompt for job in islice(other.jobs(), 10)]


@pytest.mark.parametrize("concurrency", [1, 3, 16])
def test_first_requests_end_one_after_another(concurrency: int) -> None:
    lengths = [first_length(place, concurrency) for place in range(concurrency)]
    assert len(set(lengths)) == concurrency
    assert lengths[-1] == OUTPUT_TOKENS
    assert lengths[0] >= 1


def test_the_prompts_own_step_emits_but_verifies_nothing() -> None:
    tally = Tally()
    tally.count("cmpl-json-1", 1, first=True, finished=False)
    tally.count("cmpl-json-1", 4, first=False, finished=False)
    tally.count("cmpl-json-1", 1, first=False, finished=True)
    assert (tally.tokens, tally.request_steps, tally.accepted, tally.finished) == (6, 2, 3, 1)
    assert tally.by_kind == {"json": [2, 3]}


def test_only_our_engine_gets_the_plugin_and_only_speculating_ones_a_drafter(
    tmp_path: Path,
) -> None:
    def made(key: str) -> Setup:
        return setup_for(key, tmp_path, "draft", "probabilistic")

    assert (made("none").draft, made("none").adaptive) == (None, None)
    assert (made("vllm").k, made("vllm").adaptive) == (6, None)
    assert (made("plugin").k, made("plugin").adaptive) == (6, {})
    assert (made("own-engine2").k, made("own-engine2").adaptive) == (2, None)


@pytest.mark.parametrize(
    ("draft", "target"), [("draft", "target_big"), ("eagle3_big", "target_big"), (MTP, MTP)]
)
def test_all_engines_of_a_drafter_have_the_same_target(
    tmp_path: Path, draft: str, target: str
) -> None:
    keys = ("none", "vllm", "plugin")
    assert {setup_for(key, tmp_path, draft, "greedy").target for key in keys} == {target}


def test_a_configuration_in_the_environment_switches_no_engine_on() -> None:
    given = environment({"ADAPTIVE_SPEC_CONFIG": "other.yaml", "HOME": "/home/someone"})
    assert "ADAPTIVE_SPEC_CONFIG" not in given
    assert given["HOME"] == "/home/someone"
    assert given["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
