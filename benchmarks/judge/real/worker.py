"""The program of an engine's process: a setup, then tasks, as JSON lines; runs as JSON lines back.

python -m benchmarks.judge.real.worker
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from ..arms import NONE, parse_arm
from ..device import Device
from ..processes import answer_lines
from ..run import growth
from ..setup import SGLANG, Setup
from .runs import Run, RunKey
from .traffic import Engine, Load, serve

LEARN_STEPS = 300
"""Least steps of a cold policy's run, and so least steps that a warm one has learned from."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Loads to be answered by an arm.

    Attributes:
        key: of the run; its arm begins with nothing learned.
        device: on whose clock.
        load: to be answered.
        warm: name of the arm under which the same policy answers the load once more; the first
            time it goes on for `learn` steps at least. Empty: no second time.
        learn: least steps to learn from; the same prompts are asked over and over.
    """

    key: RunKey
    device: Device
    load: Load
    warm: str = ""
    learn: int = LEARN_STEPS

    @property
    def keys(self) -> list[RunKey]:
        """Keys of the runs that it makes."""
        keys = [self.key]
        if self.warm:
            keys.append(msgspec.structs.replace(self.key, arm=self.warm))
        return keys


def runs(engine: Engine, task: Task) -> Iterator[Run]:
    """Do a task."""
    engine.use(parse_arm(task.key.arm), task.device)
    least = task.learn if task.warm else 0
    yield _one(engine, task.key, task.load, least)
    if task.warm:
        yield _one(engine, task.keys[1], task.load)


def _one(engine: Engine, key: RunKey, load: Load, least_steps: int = 0) -> Run:
    before = engine.status()
    answers = serve(engine, load, least_steps)
    after = engine.status()
    texts: list[tuple[list[int], list[int]]] = []
    if key.arm in (NONE, "k0"):
        prompts = [job.prompt for job in itertools.islice(load.jobs(), len(answers))]
        texts = list(zip(engine.tokens_of(prompts), answers, strict=True))
    return Run(
        key=key,
        steps=engine.recorder.pop_steps(),
        sums=[checksum(tokens) for tokens in answers],
        texts=texts,
        modes=growth(before, after, "steps_by_mode"),
        faults=sum(growth(before, after, "fail_opens").values()),
    )


def checksum(tokens: list[int]) -> int:
    """Return a checksum of an answer."""
    return zlib.crc32(b"".join(token.to_bytes(4, "little") for token in tokens))


def engine_of(setup: Setup) -> Engine:
    """Return a running engine."""
    if setup.engine == SGLANG:
        from .sglang import SglangEngine

        return SglangEngine(setup)
    from .vllm import VllmEngine

    return VllmEngine(setup)


def answers(lines: Iterator[bytes]) -> Iterator[Any]:
    """Build the engine, then do one task after the other."""
    engine = engine_of(msgspec.json.decode(next(lines), type=Setup))
    yield {"ready": True}
    for line in lines:
        # All runs of a task or none: a warm policy goes on from what it learned in the first.
        yield list(runs(engine, msgspec.json.decode(line, type=Task)))
    engine.close()


if __name__ == "__main__":
    answer_lines(answers)
