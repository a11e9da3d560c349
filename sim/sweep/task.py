"""One unit of a sweep's work: a policy, or the oracles, on one cell. Runs in any process."""

from __future__ import annotations

from typing import Literal

import msgspec

from adaptive_spec.kernels import load_kernels, select_kernel
from adaptive_spec.sim.oracle import Oracles, consult
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.results.result import Result
from adaptive_spec.sim.scenario import Scenario, simulate
from adaptive_spec.sim.sweep.cells import CellName


class Task(msgspec.Struct, frozen=True):
    """One run of a sweep.

    Attributes:
        cell: where its result belongs.
        policy: its name in results; None: the oracles.
        choice: the policy as the configuration writes it; empty for the oracles.
        scenario: what to simulate.
        kernel: implementation of the planner.
        foresight: the oracles include it.
    """

    cell: CellName
    policy: str | None
    choice: str
    scenario: Scenario
    kernel: Literal["auto", "numpy", "numba"]
    foresight: bool = True

    @property
    def key(self) -> RunKey:
        """Identifies it within the sweep."""
        return self.cell, self.policy

    @property
    def text(self) -> str:
        """Name of the task in messages."""
        return f"{self.cell.text} / {self.policy or 'oracles'}"


RunKey = tuple[CellName, str | None]


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of a task: a result, oracles, or one line that says what went wrong."""

    cell: CellName
    policy: str | None = None
    result: Result | None = None
    oracles: Oracles | None = None
    error: str | None = None

    @property
    def key(self) -> RunKey:
        """Key of the task."""
        return self.cell, self.policy

    @property
    def text(self) -> str:
        """Name of the task in messages."""
        return f"{self.cell.text} / {self.policy or 'oracles'}"


def execute(task: Task) -> Outcome:
    """Run a task. What fails is told in the outcome, so that others go on."""
    try:
        select_kernel(task.kernel)
        load_kernels()  # for foresight, too
        if task.policy is None:
            oracles = consult(task.scenario, foresight=task.foresight)
            return Outcome(cell=task.cell, oracles=oracles)
        result = simulate(task.scenario, parse_policy(task.choice))
        result = msgspec.structs.replace(result, policy=task.policy)
        return Outcome(cell=task.cell, policy=task.policy, result=result)
    except Exception as error:
        return failed(task, _one_line(error))


def failed(task: Task, error: str) -> Outcome:
    """A task that came to nothing."""
    return Outcome(cell=task.cell, policy=task.policy, error=error)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
