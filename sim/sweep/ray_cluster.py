"""Execution of tasks on a Ray cluster.

Each machine of the cluster needs this package and the data under the same paths.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from adaptive_spec.errors import ConfigError, missing_extra
from adaptive_spec.sim.sweep.process_pool import DIED, Work, execute

_Outcome = TypeVar("_Outcome")

LOCAL = "local"


def run_on_ray(
    tasks: Sequence[Work[_Outcome]], address: str, jobs: int | None
) -> Generator[_Outcome, None, None]:
    """Outcomes as they come, in any order.

    Args:
        tasks: what to run; one CPU each.
        address: ``local`` starts a cluster of `jobs` CPUs on this machine; otherwise as
            `ray.init` takes it: ``auto``, ``ray://HOST:PORT``, ``HOST:PORT``.
        jobs: tasks under way at a time; None: as many as the cluster has CPUs.

    Raises ConfigError if Ray is not installed or there is no such cluster.
    """
    ray = _connected(address, jobs)
    try:
        cpus = int(ray.cluster_resources().get("CPU", 1))
        # One more than there are CPUs, so that none waits for us to hand out the next.
        limit = jobs or cpus + 1
        remote = ray.remote(num_cpus=1, max_retries=1)(execute)
        waiting = list(reversed(tasks))
        under_way: dict[Any, Work[_Outcome]] = {}
        while waiting or under_way:
            while waiting and len(under_way) < limit:
                task = waiting.pop()
                under_way[remote.remote(task)] = task
            (done,), _ = ray.wait(list(under_way), num_returns=1)
            yield _outcome(ray, done, under_way.pop(done))
    finally:
        ray.shutdown()


def _connected(address: str, jobs: int | None) -> Any:
    try:
        import ray
    except ImportError as error:
        raise missing_extra("--ray needs Ray", "ray") from error
    settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == LOCAL:
        settings |= {"include_dashboard": False, "num_cpus": jobs}
    try:
        ray.init(address=address, **settings)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"--ray {address}: cannot connect: {reason}") from error
    return ray


def _outcome(ray: Any, reference: Any, task: Work[_Outcome]) -> _Outcome:
    try:
        outcome: _Outcome = ray.get(reference)
    except ray.exceptions.WorkerCrashedError:
        return task.failed(DIED)
    except ray.exceptions.RayError as error:
        return task.failed(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return outcome
