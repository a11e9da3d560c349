"""The committed prompts."""

from __future__ import annotations

import json

from .names import PROMPTS


def load_prompts() -> dict[str, list[str]]:
    """Held-out prompts of about 64 tokens, by kind of text."""
    prompts: dict[str, list[str]] = json.loads(PROMPTS.read_text(encoding="utf-8"))
    return prompts
