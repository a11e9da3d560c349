"""The program of an engine's process: tasks as JSON lines, rows as JSON lines back.

python -m benchmarks.judge.worker
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from adaptive_spec.errors import AdaptiveSpecError, DataError

from .cells import Cell
from .processes import answer_lines
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
        restart: answer once more from saved state.
        key: of the rows.
    """

    cell: Cell
    arm: str
    ran: str
    seed: int
    restart: bool = False
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


def answer(engines: Engines, task: Task) -> Answer:
    """Do a task."""
    import time

    from .run import runs

    began = time.process_time()
    try:
        rows = list(
            runs(engines, task.cell, task.arm, task.seed, ran=task.ran, restart=task.restart)
        )
    except DataError as error:
        return Answer(left_out=str(error))
    except AdaptiveSpecError as error:
        return Answer(error=str(error))
    rows = [msgspec.structs.replace(row, key=task.key) for row in rows]
    return Answer(rows=rows, cpu=round(time.process_time() - began, 2))


def main() -> None:
    """Do one task after the other."""
    from .run import Engines

    engines = Engines()
    answer_lines(
        lambda lines: (answer(engines, msgspec.json.decode(line, type=Task)) for line in lines)
    )
    os._exit(0)  # nothing of a scripted engine wants an orderly end


if __name__ == "__main__":
    main()
