"""vLLM's two n-gram drafters on the same texts, and what our scheduler finds out of the same."""

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

LONGEST_TEXT = 96


class Looked(NamedTuple):
    """What was found for one text.

    Attributes:
        text: its tokens.
        shortest, longest: bounds of a match.
        first: drafts of model runner V1.
        second: drafts of model runner V2, Kmax of them.
        shown: what the scheduler shows for them.
    """

    text: list[int]
    shortest: int
    longest: int
    first: list[int]
    second: list[int]
    shown: float


def look_up(count: int, kmax: int, seed: int) -> list[Looked]:
    """Let all three look up random texts of few different tokens. Needs Triton's interpreter."""
    import torch
    from vllm.v1.spec_decode.ngram_proposer import _find_longest_matched_ngram_and_propose_tokens
    from vllm.v1.worker.gpu.spec_decode.ngram.speculator import NgramGPUSpeculator

    from adaptive_spec.adapters.vllm.text_matches import TextMatches

    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        shortest = int(random.integers(1, 4))
        longest = shortest + int(random.integers(0, 3))
        text = random.integers(0, random.choice([2, 4, 9]), random.integers(1, 40)).tolist()
        first = _find_longest_matched_ngram_and_propose_tokens(
            np.array(text, dtype=np.int32), shortest, longest, LONGEST_TEXT, kmax
        )
        tokens = torch.zeros((1, LONGEST_TEXT), dtype=torch.int32)
        tokens[0, : len(text)] = torch.tensor(text, dtype=torch.int32)
        speculator = NgramGPUSpeculator(
            SimpleNamespace(
                speculative_config=SimpleNamespace(
                    prompt_lookup_min=shortest,
                    prompt_lookup_max=longest,
                    num_speculative_tokens=kmax,
                ),
                scheduler_config=SimpleNamespace(max_num_seqs=1),
                model_config=SimpleNamespace(max_model_len=LONGEST_TEXT),
            ),
            torch.device("cpu"),
            SimpleNamespace(
                all_token_ids=SimpleNamespace(gpu=tokens),
                total_len=SimpleNamespace(gpu=torch.tensor([len(text)], dtype=torch.int32)),
            ),
        )
        batch = SimpleNamespace(num_reqs=1, idx_mapping=torch.zeros(1, dtype=torch.int64))
        last, sampled = torch.tensor([[text[-1]]]), torch.ones(1, dtype=torch.int32)
        second = speculator.propose(
            batch, None, None, None, None, sampled, None, last, None, None, None
        )
        request = SimpleNamespace(
            request_id=str(number),
            prompt_token_ids=text,
            num_prompt_tokens=len(text),
            num_tokens=len(text),
            all_token_ids=text,
        )
        shown = float(TextMatches(shortest).find([request])[0])
        found.append(Looked(text, shortest, longest, first.tolist(), second[0].tolist(), shown))
    return found


def notes_at_start(models: dict[str, Path], method: str) -> tuple[str, ...]:
    """Return what the plugin says of a server with these drafts."""
    from engines import speculative_config
    from vllm.engine.arg_utils import EngineArgs

    from adaptive_spec.adapters.vllm.capability import detect

    arguments = EngineArgs(
        model=str(models["target"]),
        max_model_len=256,
        speculative_config=speculative_config(models, method),
    )
    return detect(arguments.create_engine_config()).notes
