"""Records of a real engine's texts: what the draft model drafts from every position on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData

from ..setup import KMAX
from .vllm import MODELS

Texts = Sequence[tuple[list[int], list[int]]]
"""Tokens of prompts and answers."""


def acceptance(texts: Texts, models: Path, method: str, *, sglang: bool = False) -> AcceptanceData:
    """Return a record for each text. Exact for greedy decoding: nothing is imputed.

    Args:
        texts: of an engine without speculation.
        models: folder of the bench models.
        method: the draft model's, as in `vllm.MODELS`.
        sglang: its drafter is not shown the first token of a prompt: the prompt of a draft model
            is shifted by one, as EAGLE's has to be (`_draft_extend_for_prefill` of SGLang's
            eagle_worker_v2.py). And it verifies and counts drafts beyond an answer's end.
    """
    import torch
    from transformers import LlamaForCausalLM

    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(models / MODELS[method], dtype=torch.float32).eval()
    target = LlamaForCausalLM.from_pretrained(models / "target", dtype=torch.float32).eval()
    unseen = 1 if sglang else 0
    accepted, sure, lengths = [], [], []
    for prompt, answer in texts:
        # The drafter begins after the first token of the answer.
        first, rows = len(prompt), max(len(answer) - 1, 1)
        with torch.no_grad():
            seen = (prompt + answer)[unseen:]
            drafted, certain = _drafts(model, seen, first - unseen, rows)
        known = answer + (_after(target, prompt + answer) if sglang else [])
        for place in range(rows):
            follows = known[1 + place : 1 + place + KMAX]
            right = [a == b for a, b in zip(drafted[place], follows, strict=False)]
            accepted.append((*right, False).index(False))
        sure += certain
        lengths.append(rows)
    return AcceptanceData(
        name="bench pair",
        source="the bench pair's own texts",
        accepted=np.array(accepted, dtype=np.uint8),
        offsets=np.cumsum([0, *lengths]),
        prompt_tokens=np.array([len(prompt) for prompt, _ in texts]),
        labels=("",) * len(texts),
        depth=KMAX,
        confidence=np.array(sure, dtype=np.float32),
    )


def _after(target: Any, text: list[int]) -> list[int]:
    """The Kmax tokens with which the target would go on."""
    import torch

    with torch.no_grad():
        for _ in range(KMAX):
            text = [*text, int(target(torch.tensor([text])).logits[0, -1].argmax())]
    return text[-KMAX:]


def _drafts(
    model: Any, text: list[int], first: int, rows: int
) -> tuple[list[list[int]], list[list[float]]]:
    """Kmax drafts, and their probabilities, that follow each of `rows` positions from `first` on.

    Each position is a row that sees the text up to there, then its own drafts.
    """
    import torch

    read = model(torch.tensor([text]), use_cache=True)
    likely = read.logits[0, first : first + rows].softmax(-1).max(-1)
    drafts, certain = [likely.indices], [likely.values]
    places = first + torch.arange(rows)
    cache = read.past_key_values
    cache.batch_repeat_interleave(rows)
    seen = (torch.arange(len(text)) <= places[:, None]).long()
    for depth in range(1, KMAX):
        seen = torch.cat((seen, torch.ones(rows, 1, dtype=torch.long)), dim=1)
        read = model(
            drafts[-1][:, None],
            attention_mask=seen,
            position_ids=places[:, None] + depth,
            past_key_values=cache,
        )
        likely = read.logits[:, -1].softmax(-1).max(-1)
        drafts.append(likely.indices)
        certain.append(likely.values)
    return torch.stack(drafts, 1).tolist(), torch.stack(certain, 1).tolist()
