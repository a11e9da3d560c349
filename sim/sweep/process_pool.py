"""Execution of tasks in processes of this machine, which survives the death of any of them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol, TypeVar

_Outcome = TypeVar("_Outcome")
_Outcome_co = TypeVar("_Outcome_co", covariant=True)

DIED = "worker process died (killed, or out of memory)"


class Work(Protocol[_Outcome_co]):
    """A task, which another process can get."""

    def execute(self) -> _Outcome_co:
        """Return the outcome; raises nothing."""
        ...

    def failed(self, error: str) -> _Outcome_co:
        """Return the outcome of a task that came to nothing."""
        ...


def execute(task: Work[_Outcome]) -> _Outcome:
    """Execute a task in the process that calls this."""
    return task.execute()


def run_in_processes(tasks: Sequence[Work[_Outcome]], jobs: int) -> Generator[_Outcome, None, None]:
    """Outcomes as they come, in any order.

    A dead worker takes the whole pool with it and does not say which task killed it. So no more
    tasks are handed out than there are workers, and those under way are tried again one by one:
    a task whose worker dies while it is alone has failed.
    """
    waiting = list(reversed(tasks))
    while waiting:
        suspects: list[Work[_Outcome]] = []
        with WorkerPool(jobs) as pool:
            under_way: dict[Future[_Outcome], Work[_Outcome]] = {}
            while (waiting or under_way) and not suspects:
                while waiting and len(under_way) < jobs:
                    task = waiting.pop()
                    try:
                        under_way[pool.submit(execute, task)] = task
                    except BrokenProcessPool:
                        suspects.append(task)
                        break
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    task = under_way.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        suspects.append(task)
            # A broken pool ends every future, with its result if there was one in time.
            for future, task in under_way.items():
                if future.exception() is None:
                    yield future.result()
                else:
                    suspects.append(task)
        for task in suspects:
            yield _alone(task)


def _alone(task: Work[_Outcome]) -> _Outcome:
    with WorkerPool(1) as pool:
        try:
            return pool.submit(execute, task).result()
        except BrokenProcessPool:
            return task.failed(DIED)


class WorkerPool(ProcessPoolExecutor):
    """At most `jobs` spawned workers, which end with their parent; left early, it does not wait."""

    def __init__(self, jobs: int) -> None:
        # fork would copy locks that threads of numba hold.
        context = multiprocessing.get_context("spawn")
        super().__init__(max_workers=jobs, mp_context=context, initializer=_begin)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            for process in list((self._processes or {}).values()):
                process.terminate()
        self.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Leave Ctrl-C to the parent, and end when it does.

    Workers of a killed parent would wait for work for ever: they hold their own pipe open.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
