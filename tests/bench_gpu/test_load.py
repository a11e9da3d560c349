from __future__ import annotations

from itertools import islice

import msgspec
import pytest

from benchmarks.bench_pair.names import KINDS
from benchmarks.gpu.load import Load, Tally

LOAD = Load(clients=4, temperature=0.8, seed=3, seconds=1.0)


def test_each_kind_has_its_turn_in_every_cycle() -> None:
    prompts = list(islice(LOAD.prompts(), 4 * LOAD.cycle))
    for start in range(0, len(prompts), LOAD.cycle):
        assert {kind for kind, _ in prompts[start : start + LOAD.cycle]} == set(KINDS)


def test_a_kind_alone_is_alone() -> None:
    alone = msgspec.structs.replace(LOAD, kind="json")
    assert alone.cycle == 1
    assert {kind for kind, _ in islice(alone.prompts(), 7)} == {"json"}


def test_the_seed_decides_the_prompts() -> None:
    same = list(islice(LOAD.prompts(), 20))
    assert same == list(islice(LOAD.prompts(), 20))
    assert same != list(islice(msgspec.structs.replace(LOAD, seed=4).prompts(), 20))


@pytest.mark.parametrize("clients", [1, 3, 64])
def test_first_answers_end_one_after_another(clients: int) -> None:
    load = msgspec.structs.replace(LOAD, clients=clients)
    lengths = [load.first_length(place) for place in range(clients)]
    assert len(set(lengths)) == clients
    assert (lengths[0] >= 1, lengths[-1]) == (True, load.output_tokens)


def test_the_step_of_a_prompt_emits_but_verifies_nothing() -> None:
    tally = Tally()
    tally.count("json", 1, first=True, finished=False)
    tally.count("json", 4, first=False, finished=False)
    tally.count("json", 1, first=False, finished=True)
    assert (tally.tokens, tally.finished, tally.by_kind) == (6, 1, {"json": [2, 3]})
