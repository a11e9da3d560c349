from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_cells import CONDITION, cell

from benchmarks.vllm_cpu.arms import Arm, parse_arm
from benchmarks.vllm_cpu.cells import CellFile
from benchmarks.vllm_cpu.engine import Load
from benchmarks.vllm_cpu.machine_lock import MachineLock
from benchmarks.vllm_cpu.rounds import Rounds, growth, rotated

ARMS = [parse_arm(name) for name in ("none", "static1", "static6", "schedule", "ours", "ours-cold")]
RATE = {"none": 1.0, "vllm": 2.0, "plugin": 3.0}


class FakeEngine:
    """Serves at a fixed rate and remembers what it was asked for."""

    def __init__(self, key: str, served: list[tuple[str, Load, Any, Any]]) -> None:
        self._key = key
        self._served = served
        self._steps = 0
        self.others_cpu: list[float] = []

    def serve(self, load: Load, *, table: Any = None, policy: Any = None) -> dict[str, Any]:
        self._served.append((self._key, load, table, policy))
        self._steps += 10
        counted = msgspec.to_builtins(cell())
        for name in ("arm", "concurrency", "repeat", "table", "plugin"):
            del counted[name]
        others = self.others_cpu.pop(0) if self.others_cpu else 0.0
        rate = {"seconds": 1.0, "tokens": round(100 * RATE[self._key]), "others_cpu": others}
        return counted | rate

    def status(self) -> dict[str, Any]:
        return {"steps_by_mode": {"on": self._steps}, "requests_by_k": {}, "fail_opens": {}}


class Run:
    """Rounds over fake engines, and what they were asked for."""

    def __init__(self, path: Path, arms: list[Arm]) -> None:
        self.served: list[tuple[str, Load, Any, Any]] = []
        self.engines: Any = {key: FakeEngine(key, self.served) for key in RATE}
        self.file = CellFile(path / "cells.jsonl", CONDITION)
        lock = MachineLock(None, 1.0, lambda line: None)
        self.rounds = Rounds(self.engines, arms, CONDITION, self.file, lock, lambda line: None)

    def measure(self, repeats: int, concurrencies: tuple[int, ...] = (1, 4)) -> list[Any]:
        self.rounds.warm_up(concurrencies, 1.0)
        self.served.clear()
        self.rounds.measure(concurrencies, repeats, 10.0)
        return self.served


def test_every_arm_gets_the_same_requests_in_a_round(tmp_path: Path) -> None:
    served = Run(tmp_path, ARMS).measure(2)
    assert len(served) == 2 * 2 * len(ARMS)
    for start in range(0, len(served), len(ARMS)):
        loads = {load for _, load, _, _ in served[start : start + len(ARMS)]}
        assert len(loads) == 1
    rounds = {served[start][1].seed for start in range(0, len(served), len(ARMS))}
    assert len(rounds) == 4


def test_a_run_that_was_ended_measures_only_what_is_missing(tmp_path: Path) -> None:
    Run(tmp_path, ARMS[:3]).measure(1)
    again = Run(tmp_path, ARMS)
    served = again.measure(1)
    assert len(served) == 2 * 3
    assert len(again.file.cells) == 2 * len(ARMS)


def test_only_measured_cells_complete_a_cycle_of_kinds(tmp_path: Path) -> None:
    run = Run(tmp_path, ARMS)
    run.rounds.warm_up((1,), 1.0)
    assert not any(load.whole_cycles for _, load, _, _ in run.served)
    assert all(load.whole_cycles for _, load, _, _ in run.measure(1))


def test_the_schedule_is_last_in_the_first_repeat_and_tuned_on_what_was_measured(
    tmp_path: Path,
) -> None:
    served = Run(tmp_path, ARMS).measure(1)
    vllm = [table for key, _, table, _ in served if key == "vllm"]
    # static1, static6, schedule at concurrency 1; all static K are equally fast here.
    assert vllm[0] == [(1, 16, 1)]
    assert vllm[1] is None
    assert vllm[2] == [(1, 1, 1), (2, 16, 1)]


def test_the_schedule_is_tuned_once_on_the_first_repeat(tmp_path: Path) -> None:
    run = Run(tmp_path, ARMS)
    run.measure(1, (4,))
    # In the second repeat static6 happens to be measured first, and very fast.
    run.file.add(cell("static6", 4, 1, tokens=100_000))
    served = run.measure(2, (4,))
    tables = [table for key, _, table, _ in served if key == "vllm" and table is not None]
    assert tables[-1] == [(1, 4, 1), (5, 16, 1)]


def test_a_disturbed_cell_is_measured_again_and_the_last_one_kept(tmp_path: Path) -> None:
    run = Run(tmp_path, ARMS[:1])
    run.rounds.warm_up((1,), 1.0)
    run.engines["none"].others_cpu = [1.0, 0.3, 0.1, 0.0]
    run.rounds.measure((1,), 2, 10.0)
    assert [each.others_cpu for each in run.file.cells] == [0.1, 0.0]


def test_a_machine_that_stays_busy_ends_in_a_cell_that_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path, ARMS[:1])
    run.rounds.warm_up((1,), 1.0)
    run.engines["none"].others_cpu = [1.0] * 10
    run.rounds.measure((1,), 1, 10.0)
    assert [each.disturbed for each in run.file.cells] == [True]


def test_rotation_moves_every_arm_through_the_places() -> None:
    firsts = [rotated(ARMS, by, first=False)[0].name for by in range(len(ARMS))]
    assert firsts == [arm.name for arm in ARMS]
    assert rotated(ARMS, 4, first=True)[-1].name == "schedule"


def test_ours_keeps_its_policy_and_cold_gets_a_fresh_one(tmp_path: Path) -> None:
    served = Run(tmp_path, ARMS).measure(1, (1,))
    policies = [policy for key, _, _, policy in served if key == "plugin"]
    assert policies == [
        {"name": "goodput", "options": {}, "fresh": False},
        {"name": "goodput", "options": {}, "fresh": True},
    ]


def test_growth_counts_since_before() -> None:
    before = {"steps_by_mode": {"on": 3}, "requests_by_k": {"0": 1}, "fail_opens": {}}
    after = {"steps_by_mode": {"on": 5, "off_warm": 2}, "requests_by_k": {"0": 1}, "fail_opens": {}}
    assert growth(before, after) == {
        "steps_by_mode": {"on": 2, "off_warm": 2},
        "requests_by_k": {},
        "fail_opens": {},
    }


@pytest.mark.parametrize("arms", [["none"], ["static3", "ours"]])
def test_any_subset_of_arms_can_be_measured(tmp_path: Path, arms: list[str]) -> None:
    served = Run(tmp_path, [parse_arm(name) for name in arms]).measure(1)
    assert len(served) == 2 * len(arms)
