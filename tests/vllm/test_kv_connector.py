"""A prefill instance writes its KV cache to files, a decode instance reads it and steers K.

vLLM's ExampleConnector stands in for NIXL and LMCache: the scheduler treats all of them alike.
"""

from pathlib import Path
from typing import Any

import pytest
from engines import KMAX, PATIENT, RANDOM, Job, check_same
from recording import labels, record_steps
from scenarios import prompts

pytestmark = pytest.mark.engine

ROOMY = {
    "num_gpu_blocks_override": 64,
    "max_num_batched_tokens": 512,
    "enable_prefix_caching": False,
}
"""The connector wants each prompt in one step."""


def crowd(tokens: int | None = None) -> list[Job]:
    return [
        Job(f"text-{place}", text * 3, 2 * place, {"max_tokens": tokens or 12 + 3 * place})
        for place, text in enumerate(prompts(6, 17))
    ]


def connected(folder: Path, role: str) -> Any:
    from vllm.config import KVTransferConfig

    return KVTransferConfig(
        kv_connector="ExampleConnector",
        kv_role=role,
        kv_connector_extra_config={"shared_storage_path": str(folder)},
    )


SCHEDULING = pytest.mark.parametrize(
    "asynchronous",
    [pytest.param(False, id="sync", marks=pytest.mark.long), pytest.param(True, id="async")],
)


@SCHEDULING
def test_decode_instance_continues_what_the_prefill_instance_began(
    shelf: Any, tmp_path: Path, asynchronous: bool
) -> None:
    expected = shelf.get(**ROOMY).run(crowd())
    prefill = shelf.get(
        "eagle", adaptive=RANDOM, kv_transfer_config=connected(tmp_path, "kv_producer"), **ROOMY
    )
    assert not hasattr(prefill.scheduler, "adaptive_spec"), "a prefill instance is left alone"
    prefill.run(crowd(tokens=1))
    assert any(tmp_path.iterdir()), "nothing was handed over"

    decode = shelf.get(
        "eagle",
        adaptive=RANDOM,
        asynchronous=asynchronous,
        kv_transfer_config=connected(tmp_path, "kv_consumer"),
        **ROOMY,
    )
    read = count_read_tokens(decode)
    record = record_steps(decode)
    answers = decode.run(crowd())
    check_same(answers, expected)
    assert sum(read) > 0, "no prompt was read from the prefill instance"
    outcomes = [outcome for _, _, outcome in record if outcome is not None]
    assert {int(k) for outcome in outcomes for k in outcome.verified} >= {0, 1, 2}
    assert any(outcome.accepted.sum() for outcome in outcomes)
    assert decode.controller.counters.failures == {}


@SCHEDULING
def test_labels_are_those_of_an_engine_that_computed_the_prompts_itself(
    shelf: Any, tmp_path: Path, asynchronous: bool
) -> None:
    """vllm#50518: the padding of a decode that follows a remote prefill counted as rejections."""
    adaptive = {"policy": "static", "options": {"k": KMAX}, "fail_open": PATIENT}
    prefill = shelf.get(
        "draft_model",
        adaptive=adaptive,
        kv_transfer_config=connected(tmp_path, "kv_producer"),
        **ROOMY,
    )
    prefill.run(crowd(tokens=1))
    found = {}
    for kind, options in {
        "alone": {},
        "decode": {"kv_transfer_config": connected(tmp_path, "kv_consumer")},
    }.items():
        engine = shelf.get(
            "draft_model", adaptive=adaptive, asynchronous=asynchronous, **options, **ROOMY
        )
        read = count_read_tokens(engine) if kind == "decode" else [0]
        record = record_steps(engine)
        engine.run(crowd())
        found[kind] = labels(record)
    assert sum(read) > 0, "no prompt was read from the prefill instance"
    assert all(verified for pairs in found["decode"].values() for verified, _ in pairs)
    assert sum(a for pairs in found["alone"].values() for _, a in pairs) > 20
    print("LABELS", found)
    assert found["decode"] == found["alone"]


def count_read_tokens(engine: Any) -> list[int]:
    """Prompt tokens that the connector finds, per question of the scheduler."""
    connector, read = engine.scheduler.connector, []
    original = connector.get_num_new_matched_tokens

    def counted(*args: Any) -> Any:
        found = original(*args)
        read.append(found[0] or 0)
        return found

    connector.get_num_new_matched_tokens = counted
    return read
