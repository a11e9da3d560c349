"""K shrinks before a request would be preempted for drafts alone."""

from typing import Any

import msgspec
import pytest
from engines import PATIENT, Job
from scenarios import prompts

pytestmark = pytest.mark.engine

KMAX = 8
TAKEN = (38, 42, 44)
"""Blocks that are taken from the pool: at 30, the batch just fits with K = 8."""


def jobs() -> list[Job]:
    """A batch that is there from the beginning; its requests end one after the other."""
    return [
        Job(f"r{place}", text, 0, {"max_tokens": 40 + 12 * place})
        for place, text in enumerate(prompts(10, 61))
    ]


@pytest.mark.long  # tests/core/controller has the guard in every run
def test_there_are_fewer_preemptions_than_with_static_k(shelf: Any) -> None:
    engine = shelf.get(
        "ngram",
        adaptive={
            "policy": "static",
            "options": {"k": KMAX},
            "fail_open": PATIENT,
        },
        speculation={"num_speculative_tokens": KMAX},
        num_gpu_blocks_override=72,
        max_num_batched_tokens=512,
        enable_prefix_caching=False,
    )
    controller = engine.controller
    pool = engine.scheduler.kv_cache_manager.block_pool
    expected = engine.run(jobs())
    assert engine.preemptions == 0
    preemptions, steps = {False: 0, True: 0}, {False: 0, True: 0}
    for taken in TAKEN:
        for guard in (False, True):
            controller.config = msgspec.structs.replace(controller.config, memory_guard=guard)
            held = pool.get_new_blocks(taken)
            preempted, stepped = engine.preemptions, engine.steps
            answers = engine.run(jobs())
            preemptions[guard] += engine.preemptions - preempted
            steps[guard] += engine.steps - stepped
            pool.free_blocks(held)
            for name, answer in expected.items():
                assert answers[name].tokens == answer.tokens, (name, taken, guard)
    assert preemptions[False] >= 10, "memory was not tight"
    assert preemptions[True] < preemptions[False]
    assert steps[True] <= steps[False]
    assert controller.counters.events["steps_cut_for_memory"] > 0
    assert controller.counters.failures == {}
