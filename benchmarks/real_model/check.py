"""Is the converted model the model? Perplexity, chat template, first answers; vLLM's own answers.

    python -m benchmarks.real_model.check MODEL [--vllm]

`--vllm` compares the first 64 greedy tokens of 24 instructions under vLLM with transformers', both
in float32.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from adaptive_spec.errors import AdaptiveSpecError, DataError

from .instructions import KINDS, Instruction, measured

PERPLEXITY = 10.6137
ANSWERS = "afcb990fd6826ad1"
"""16 digits of sha256 of a list in JSON: the first 16 tokens that answer each kind's first."""
TEMPLATE = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
)
TOKENS, EACH = 64, 3


class Reference:
    """The model in transformers, float32."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def prompt(self, instruction: Instruction) -> list[int]:
        """Return the first turn in the chat template."""
        said = [{"role": "user", "content": instruction.turns[0]}]
        text = self.tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
        tokens: list[int] = self.tokenizer.encode(text)
        return tokens

    def answer(self, prompt: list[int], most: int) -> list[int]:
        """Answer greedily."""
        made = self.model.generate(
            torch.tensor([prompt]), max_new_tokens=most, do_sample=False,
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        )  # fmt: skip
        tokens: list[int] = made[0, len(prompt) :].tolist()
        return tokens

    def perplexity(self, text: str) -> float:
        """Return exp of the mean cross-entropy per token."""
        tokens = torch.tensor([self.tokenizer.encode(text)])
        with torch.no_grad():
            return float(self.model(tokens, labels=tokens).loss.exp())

    def lead(self, tokens: list[int]) -> float:
        """Return by how much (nats) the likeliest token leads behind these ones."""
        with torch.no_grad():
            best = self.model(torch.tensor([tokens])).logits[0, -1].topk(2).values
        return float(best[0] - best[1])


def some(each: int) -> list[Instruction]:
    """Return the first measured instructions of every kind."""
    rows = measured()
    return [row for kind in KINDS for row in [r for r in rows if r.kind == kind][:each]]


def text() -> str:
    """Return a text of the standard library that is committed here: documents to summarise."""
    return "\n\n".join(row.turns[0] for row in measured() if row.kind == "summary")[:3000]


def check(folder: Path) -> None:
    """Check a model folder. Raises DataError saying what differs."""
    model = Reference(folder)
    said = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], add_generation_prompt=True, tokenize=False
    )
    perplexity = model.perplexity(text())
    answers = [model.answer(model.prompt(each), 16) for each in some(1)]
    digest = hashlib.sha256(json.dumps(answers).encode()).hexdigest()
    print(f"perplexity {perplexity:.4f}, answers {digest[:16]}")
    if said != TEMPLATE:
        raise DataError(f"{folder}: the chat template gives {said!r}")
    if abs(perplexity / PERPLEXITY - 1) > 0.002:
        raise DataError(f"{folder}: perplexity is {perplexity:.4f}, not {PERPLEXITY}")
    if digest[:16] != ANSWERS:
        raise DataError(f"{folder}: its first answers are others: {digest[:16]}, not {ANSWERS}")


def compare(folder: Path) -> list[str]:
    """Return where vLLM's greedy answers part from transformers', a line each."""
    from .records import Model

    model, reference = Model(folder, "float32"), Reference(folder)
    asked = [Instruction(each.kind, each.turns[:1]) for each in some(EACH)]
    rows = model.answer([(each, 0.0) for each in asked], most=TOKENS)
    parted = []
    for row in rows:
        wanted = reference.answer(row.prompt, TOKENS)
        at = _parting(row.output, wanted)
        if at is not None:
            lead = reference.lead(row.prompt + wanted[:at])
            parted.append(f"{row.kind}: at token {at}, where the first leads by {lead:.5f} nats")
    print(f"{len(asked) - len(parted)} of {len(asked)} answers are equal, {TOKENS} tokens each")
    return parted


def _parting(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the first place where the lists differ."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return None if len(one) == len(other) else min(len(one), len(other))


def main() -> int:
    """Parse and check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--vllm", action="store_true")
    given = parser.parse_args()
    try:
        check(given.model)
    except AdaptiveSpecError as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    parted = compare(given.model) if given.vllm else []
    print(*parted, sep="\n")
    return int(bool(parted))


if __name__ == "__main__":
    sys.exit(main())
