"""Where the committed files are and what the models are called.  Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
WEIGHTS = HERE / "weights"
TOKENIZER = HERE / "tokenizer"
PROMPTS = HERE / "prompts.json"

KINDS = ("code", "prose", "json", "log", "random")
"""The kinds of text, from which both the corpus and the prompts are drawn."""

MODELS = ("target", "target_big", "draft", "draft_poor", "eagle", "mtp", "eagle3")
"""Models that `build` materialises."""

VOCABULARY_SIZE = 2048
