"""Rounds of vLLM's own block verification (model runner V2), on a small world of known laws."""

from collections import Counter
from types import SimpleNamespace

import numpy as np

DEPTH = 3
CALL = 100
"""Requests of one call of vLLM's function; each takes about a fortieth of a second."""

Counts = dict[int, Counter[tuple[tuple[int, ...], int]]]
"""By K: how often each (emitted tokens, accepted drafts) came out."""


def draw_rounds(calls: int, model_seed: int) -> Counts:
    """Let vLLM verify sampled drafts, K drawn per request. Needs Triton's interpreter."""
    import torch
    from vllm.triton_utils import tl
    from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils

    from tests.losslessness.exact.models import TOKENS, random_model

    # The interpreter has no functions of the device's library.
    rejection_sampler_utils.tldevice = SimpleNamespace(log1p=lambda x: tl.log(1.0 + x))
    rejection_sample = rejection_sampler_utils.rejection_sample
    model = random_model(np.random.default_rng(model_seed))
    random = np.random.default_rng(model_seed + 1)
    counts: Counts = {k: Counter() for k in range(DEPTH + 1)}
    for call in range(calls):
        ks = random.integers(0, DEPTH + 1, CALL)
        drafts = []
        for _ in range(CALL):
            prefix: tuple[int, ...] = ()
            while len(prefix) < DEPTH:
                prefix += (int(random.choice(TOKENS, p=model.draft[prefix])),)
            drafts.append(prefix)
        ends = np.concatenate([[0], np.cumsum(ks + 1)])
        rows = [(row, j) for row, k in enumerate(ks) for j in range(k + 1)]
        target = np.log([model.target[drafts[row][:j]] for row, j in rows])
        proposed = np.log([[model.draft[x[:j]] for j in range(DEPTH)] for x in drafts])
        # The first slot of a request is the token before its drafts.
        tokens = [drafts[row][j - 1] if j else 0 for row, j in rows]
        sampled, number = rejection_sample(
            torch.tensor(target, dtype=torch.float32),
            torch.tensor(proposed, dtype=torch.float32),
            torch.tensor(tokens),
            torch.tensor(ends, dtype=torch.int32),
            torch.tensor([10 + j for _, j in rows]),
            torch.arange(CALL),
            torch.tensor([row for row, _ in rows]),
            torch.tensor([j for _, j in rows], dtype=torch.int32),
            torch.ones(CALL),
            torch.arange(CALL) + CALL * call,
            DEPTH,
            use_block_verification=True,
        )
        for row, k in enumerate(ks.tolist()):
            emitted = tuple(sampled[row, : int(number[row])].tolist())
            counts[k][emitted, len(emitted) - 1] += 1
    return counts
