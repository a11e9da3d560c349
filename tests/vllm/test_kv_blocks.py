"""For how many drafts there are KV blocks, in a fake pool of blocks of 16 tokens."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adaptive_spec.adapters.vllm.kv_blocks import BlockBudget

KMAX = 4


class Request(SimpleNamespace):
    def __init__(self, name: str, tokens: int) -> None:
        super().__init__(request_id=name, num_tokens=tokens, num_output_placeholders=0)


def limits(
    tokens: list[int],
    free: int,
    *,
    held: list[int] | None = None,
    lookahead: int = 0,
    drafts: int = KMAX,
    prompt: int = 0,
    max_model_len: int = 1000,
) -> list[int] | None:
    """Draft limits of requests with so many tokens; by default they hold what these fill."""
    requests = [Request(str(place), count) for place, count in enumerate(tokens)]
    blocks = held or [-(-count // 16) for count in tokens]
    scheduler: Any = SimpleNamespace(
        num_lookahead_tokens=lookahead,
        max_model_len=max_model_len,
        max_num_scheduled_tokens=256,
        kv_cache_manager=SimpleNamespace(
            coordinator=SimpleNamespace(single_type_managers=[SimpleNamespace(block_size=16)]),
            block_pool=SimpleNamespace(get_num_free_blocks=lambda: free),
            get_blocks=lambda name: SimpleNamespace(blocks=([None] * blocks[int(name)],)),
        ),
    )
    budget = BlockBudget(scheduler, KMAX)
    found = budget.draft_limit(requests, np.full(len(requests), drafts), prompt)
    return None if found is None else found.tolist()


def test_with_blocks_for_everybody_nothing_is_limited() -> None:
    assert limits([16, 16, 16], free=3) is None


def test_only_those_whose_drafts_begin_a_block_are_cut() -> None:
    # The second fills its block exactly; the others have room in theirs.
    assert limits([20, 32, 25], free=0) == [4, 0, 4]


def test_drafts_fill_what_is_left_of_the_block() -> None:
    assert limits([30], free=0) == [2]


def test_free_blocks_go_to_the_first_in_line() -> None:
    assert limits([16, 16, 31], free=2) == [4, 4, 1]
    assert limits([16, 16, 31], free=1) == [4, 0, 1]


def test_lookahead_is_taken_whatever_k_is() -> None:
    assert limits([10], free=0, lookahead=4, held=[1]) == [2]


def test_where_even_the_bonus_token_finds_no_block_nothing_is_cut() -> None:
    assert limits([17, 10], free=0, held=[1, 1]) is None


def test_prompts_of_the_same_step_come_first() -> None:
    assert limits([16, 16], free=4, prompt=30) == [4, 0]
    assert limits([16, 16], free=5, prompt=30) is None


def test_nobody_goes_beyond_the_models_length() -> None:
    assert limits([30], free=0, max_model_len=32) == [4]


@pytest.mark.parametrize("free", range(6))
def test_what_is_allowed_fits(free: int) -> None:
    tokens = [14, 16, 29, 31, 47]
    found = limits(tokens, free)
    if found is None:
        assert free >= len(tokens)
        return
    needed = sum(
        max(-(-(count + k) // 16) - -(-count // 16), 0)
        for count, k in zip(tokens, found, strict=True)
    )
    assert needed <= free
    assert sum(found) == KMAX * 5 or needed == free or min(found) > 0
