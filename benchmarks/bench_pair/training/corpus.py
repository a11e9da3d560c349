"""Make the corpus, the tokenizer and the prompts.

    python -m benchmarks.bench_pair.training.corpus WORK_DIR

writes WORK_DIR/{train,held_out}.KIND.bin (little-endian uint16 token ids; documents end with
token 0), and replaces this package's `tokenizer/` and `prompts.json`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from benchmarks.bench_pair.names import (
    END_OF_TEXT,
    END_OF_TEXT_ID,
    KINDS,
    PROMPTS,
    TOKENIZER,
    VOCABULARY_SIZE,
)

from .generated import GENERATORS
from .standard_library import Document, read_standard_library

SEED = 7
GENERATED_DOCUMENTS = {"json": 1500, "log": 900, "random": 900}
HELD_OUT_PERCENT = 4
TOKENIZER_SHARE = {"code": 0.35, "prose": 1.0, "json": 0.4, "log": 0.4, "random": 0.05}
PROMPTS_PER_KIND = 128
PROMPT_TOKENS = 64


def read_documents() -> dict[str, list[Document]]:
    """All documents by kind, in an order that depends on the seed alone."""
    rng = random.Random(SEED)
    documents = read_standard_library()
    for kind, generate in GENERATORS.items():
        count = GENERATED_DOCUMENTS[kind]
        documents[kind] = [Document(f"{kind} {number}", generate(rng)) for number in range(count)]
    for kind in KINDS:
        rng.shuffle(documents[kind])
    return documents


def is_held_out(document: Document) -> bool:
    """A module is held out as code and as prose alike, because both have its path as name."""
    digest = hashlib.sha256(document.name.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def train_tokenizer(documents: dict[str, list[Document]]) -> Tokenizer:
    """A byte-level BPE, so that any text can be encoded and there is no unknown token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    sample = [
        document.text
        for kind in KINDS
        for document in documents[kind][: int(len(documents[kind]) * TOKENIZER_SHARE[kind])]
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Save as transformers reads it; one token begins, ends and pads."""
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
    ).save_pretrained(folder)


def encode(tokenizer: Tokenizer, documents: list[Document]) -> np.ndarray:
    """Token ids of all documents, each followed by the end-of-text token."""
    encodings = tokenizer.encode_batch([document.text for document in documents])
    ids = [token for encoding in encodings for token in (*encoding.ids, END_OF_TEXT_ID)]
    return np.array(ids, dtype="<u2")


def cut_prompts(tokenizer: Tokenizer, documents: list[Document], rng: random.Random) -> list[str]:
    """Prompts of at most `PROMPT_TOKENS` tokens that start at a line and never overlap.

    Documents that mention a copyright are left out: some modules carry a second licence.
    """
    candidates: list[str] = []
    for document in documents:
        if re.search(r"copyright|licen[sc]e", document.text, re.IGNORECASE):
            continue
        lines = document.text.splitlines(keepends=True)
        while lines:
            ids = tokenizer.encode("".join(lines[:PROMPT_TOKENS])).ids[:PROMPT_TOKENS]
            text = tokenizer.decode(ids, skip_special_tokens=False)
            if len(ids) == PROMPT_TOKENS and text.strip():
                candidates.append(text)
            lines = lines[text.count("\n") + 1 :]
    if len(candidates) < PROMPTS_PER_KIND:
        raise ValueError(f"only {len(candidates)} prompts, {PROMPTS_PER_KIND} wanted")
    return rng.sample(candidates, PROMPTS_PER_KIND)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work_dir", type=Path)
    work_dir: Path = parser.parse_args().work_dir
    work_dir.mkdir(parents=True, exist_ok=True)

    documents = read_documents()
    train = {k: [d for d in documents[k] if not is_held_out(d)] for k in KINDS}
    held_out = {k: [d for d in documents[k] if is_held_out(d)] for k in KINDS}
    tokenizer = train_tokenizer(train)
    save_tokenizer(tokenizer, TOKENIZER)
    for split, split_documents in (("train", train), ("held_out", held_out)):
        for kind in KINDS:
            ids = encode(tokenizer, split_documents[kind])
            ids.tofile(work_dir / f"{split}.{kind}.bin")
            print(f"{split} {kind}: {len(split_documents[kind])} documents, {len(ids)} tokens")
    rng = random.Random(SEED)
    prompts = {kind: cut_prompts(tokenizer, held_out[kind], rng) for kind in KINDS}
    PROMPTS.write_text(json.dumps(prompts, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
