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


@pytest.mark.parametrize(
    ("tokens", "free", "options", "allowed"),
    [
        pytest.param([16, 16, 16], 3, {}, None, id="blocks for everybody"),
        # The second fills its block exactly; the others have room in theirs.
        pytest.param([20, 32, 25], 0, {}, [4, 0, 4], id="only those who begin a block"),
        pytest.param([30], 0, {}, [2], id="what is left of the block"),
        pytest.param([16, 16, 31], 2, {}, [4, 4, 1], id="free ones to the first in line"),
        pytest.param([16, 16, 31], 1, {}, [4, 0, 1], id="one to the first in line"),
        pytest.param([10], 0, {"lookahead": 4, "held": [1]}, [2], id="lookahead whatever K is"),
        pytest.param([17, 10], 0, {"held": [1, 1]}, None, id="none even for the bonus token"),
        pytest.param([16, 16], 4, {"prompt": 30}, [4, 0], id="prompts come first"),
        pytest.param([16, 16], 5, {"prompt": 30}, None, id="prompts and drafts fit"),
        pytest.param([30], 0, {"max_model_len": 32}, [4], id="not beyond the model's length"),
    ],
)
def test_drafts_are_limited_by_blocks(
    tokens: list[int], free: int, options: dict[str, Any], allowed: list[int] | None
) -> None:
    assert limits(tokens, free, **options) == allowed


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
