"""A process of the judge does a batch of tasks on the engines that it has started."""

from __future__ import annotations

import os
import time
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from adaptive_spec.errors import AdaptiveSpecError, DataError

from .cells import Cell
from .rows import Row

if TYPE_CHECKING:
    from .run import Engines


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A cell to be answered by an arm.

    Attributes:
        cell: what is asked.
        arm: name in results.
        ran: the arm that it stands for.
        seed: of traffic, noise and policy.
        key: of the rows.
    """

    cell: Cell
    arm: str
    ran: str
    seed: int
    key: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a task.

    Attributes:
        rows: of its runs.
        left_out: why there are none: records or a trace are not there.
        error: why there are none: something failed.
        cpu: seconds.
    """

    rows: list[Row] = []
    left_out: str = ""
    error: str = ""
    cpu: float = 0.0


Answers = list[tuple[Task, Answer]]


class Batch(NamedTuple):
    """Tasks of one engine, one after the other, and the file that takes what it prints."""

    tasks: tuple[Task, ...]
    log: Path

    def execute(self) -> Answers:
        """Do the tasks."""
        engines = _started(self.log)
        return [(task, answer(engines, task)) for task in self.tasks]

    def failed(self, error: str) -> Answers:
        """Return an error for each task."""
        return [(task, Answer(error=f"{task.arm}: {error}; see {self.log}")) for task in self.tasks]


@cache
def _started(log: Path) -> Engines:
    """Return the engines of this process, which prints to a log from then on."""
    from .run import Engines

    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    Finalize(None, os._exit, (0,), exitpriority=0)  # no scripted engine wants an orderly end
    return Engines()


def answer(engines: Engines, task: Task) -> Answer:
    """Do a task; an error is its answer."""
    from .run import runs

    began = time.process_time()
    try:
        rows = list(runs(engines, task.cell, task.arm, task.seed, ran=task.ran))
    except DataError as error:
        return Answer(left_out=str(error))
    except AdaptiveSpecError as error:
        return Answer(error=str(error))
    except Exception as error:
        return Answer(error=f"{task.arm}: {error!r}")
    rows = [msgspec.structs.replace(row, key=task.key) for row in rows]
    return Answer(rows=rows, cpu=round(time.process_time() - began, 2))
