"""Runs of several ranks, each in its thread."""

from collections.abc import Sequence
from typing import Any

from harness.executor import one_engine_executor, wait
from harness.ranks import Rank, World
from harness.traffic import Traffic


def run_ranks(trt: Any, seeds: Sequence[int], *, iterations: int = 800, **options: Any) -> Any:
    """Run one executor per rank; raise the first rank's error. Returns the executors."""
    world = World(len(seeds))
    executors = [
        one_engine_executor(
            trt,
            Traffic(trt, seed, iterations=iterations, rate=0.15),
            dist=Rank(world, rank),
            **options,
        )
        for rank, seed in enumerate(seeds)
    ]
    for executor in executors:
        executor.start_worker()
    errors = []
    for executor in executors:
        try:
            wait(executor)
        except Exception as error:
            errors.append(error)
    told = [error for error in errors if "waits at" not in str(error)] or errors
    if told:
        raise told[0]
    return executors
