"""Run of a sweep, from its configuration to its results."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from adaptive_spec import __version__
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.sweep.cells import Cell, check_cells, plan_cells, policy_texts
from adaptive_spec.sim.sweep.config import SweepConfig, load_sweep_config
from adaptive_spec.sim.sweep.input_files import digest_of
from adaptive_spec.sim.sweep.process_pool import Work, run_in_processes
from adaptive_spec.sim.sweep.ray_cluster import run_on_ray
from adaptive_spec.sim.sweep.results import Failure, SweepResults, collect, write_results
from adaptive_spec.sim.sweep.store import Store
from adaptive_spec.sim.sweep.task import Outcome, Task

_Outcome = TypeVar("_Outcome")


class Plan(msgspec.Struct, frozen=True):
    """A sweep that is ready to run.

    Attributes:
        config: what was asked for.
        folder: of the configuration.
        cells: its scenarios.
        tasks: all its runs, in the order of the cells; oracles before policies.
    """

    config: SweepConfig
    folder: Path
    cells: tuple[Cell, ...]
    tasks: tuple[Task, ...]


def plan_sweep(file: Path) -> Plan:
    """Read a configuration and check everything it names.

    Raises ConfigError, DataError or PolicyError.
    """
    config = load_sweep_config(file)
    cells = plan_cells(config, file.resolve().parent)
    check_cells(config, cells, file)
    return Plan(config, file.parent, cells, _tasks(config, cells, file.parent))


def run_sweep(
    plan: Plan,
    directory: Path,
    *,
    jobs: int | None = None,
    fresh: bool = False,
    ray: str | None = None,
    progress: Callable[[int, Outcome | None], None] = lambda done, outcome: None,
) -> SweepResults:
    """Run what is not finished yet, and write the results.

    Args:
        plan: what to run.
        directory: where finished runs and results are kept.
        jobs: runs at a time; None: as many as there are CPUs.
        fresh: drop what an earlier sweep left in the directory.
        ray: address of a Ray cluster, or None for processes of this machine.
        progress: called with the number of finished runs, first with those found in the
            directory and None, then with each outcome.

    Raises ConfigError or DataError if the directory or cluster can't be used.
    """
    digests = {task.key: task.digest for task in plan.tasks}
    with closing(Store(directory, fresh=fresh)) as store:
        finished = {
            outcome.key: outcome
            for outcome in store.runs.found.values()
            if outcome.digest == digests.get(outcome.key)
        }
        left = [task for task in plan.tasks if task.key not in finished]
        done = len(plan.tasks) - len(left)
        progress(done, None)
        failed: dict[tuple[object, ...], Failure] = {}
        with closing(run_tasks(left, jobs=jobs, ray=ray)) as outcomes:
            for outcome in outcomes:
                done += 1
                if outcome.error is None:
                    store.runs.add(outcome)
                    finished[outcome.key] = outcome
                else:
                    who = outcome.policy or "oracles"
                    failed[outcome.key] = Failure(outcome.cell, who, outcome.error)
                progress(done, outcome)
        failures = tuple(failed[task.key] for task in left if task.key in failed)
        results = collect(plan.config, plan.cells, finished, failures)
        write_results(results, directory)
    return results


def run_tasks(
    tasks: Sequence[Work[_Outcome]], *, jobs: int | None, ray: str | None
) -> Generator[_Outcome, None, None]:
    """Return outcomes as they come, in any order; arguments as of `run_sweep`."""
    if tasks and ray is not None:
        return run_on_ray(tasks, ray, jobs)
    return run_in_processes(tasks, min(jobs or usable_cpus(), max(len(tasks), 1)))


def usable_cpus() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def _tasks(config: SweepConfig, cells: tuple[Cell, ...], folder: Path) -> tuple[Task, ...]:
    tasks = []
    for cell in cells:
        runs: list[tuple[str | None, str]] = [(None, "")] if config.oracles else []
        runs += [(label, text) for _, label, text in policy_texts(config, (cell,), folder)]
        tasks += [
            Task(
                cell=cell.name,
                policy=policy,
                choice=choice,
                scenario=cell.scenario,
                digest=digest_of(__version__, cell.scenario, _chosen(choice), config.foresight),
                foresight=config.foresight,
            )
            for policy, choice in runs
        ]
    return tuple(tasks)


def _chosen(policy: str) -> tuple[str, dict[str, Any]]:
    """Name and options of a policy; empty for the oracles."""
    choice = parse_policy(policy) if policy else None
    return (choice.name, choice.options) if choice else ("", {})
