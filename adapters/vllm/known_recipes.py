"""Answers for models of vLLM's own recipes, where this machine cannot get a model's configuration.

`recipes.json` is made by `scripts/recipes.py` with docs/recipes.md: what vLLM's own code made of
each recipe, and whether its attention backends replay batches of mixed K in full graphs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("recipes.json")
_GRAPHS = {"hopper": "Hopper", "blackwell": "Blackwell"}


def known_recipe(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the rows of the table for a command; empty if it names no model of it.

    Args:
        words: of the command.
    """
    table: dict[str, Any] = json.loads(_TABLE.read_text("utf-8"))
    name = next((word for word in words if word in table["recipes"]), None)
    if name is None or Path(name).exists():
        return []
    settings = table["recipes"][name]
    text = " ".join(words)
    same = [row for row in settings if f'"{row["method"]}"' in text]
    rows = [("by table", f"{name}, as vLLM {table['vllm']} judged it elsewhere")]
    if not same:
        rows.append(("note", "the recipe drafts by another method than this command"))
    for row in same or settings:
        rows.append(("steered", f"{row['method']}, Kmax {row['k']}: {row['steered']}"))
        for version, found in row.get("graphs", {}).items():
            said = "; ".join(f"{_GRAPHS[gpu]}: {what}" for gpu, what in found.items())
            if said:
                rows.append((f"full graphs, {version}", said))
    return rows
