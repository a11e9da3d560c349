"""Answers for models of vLLM's own recipes, where this machine cannot get a model's configuration.

`recipes.json` is made by `scripts/recipes.py` with docs/recipes.md: what vLLM's own code made of
each recipe, and whether its attention backends replay batches of mixed K in full graphs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TABLE = Path(__file__).with_name("recipes.json")
_GRAPHS = {"hopper": "Hopper", "blackwell": "Blackwell"}


def known_recipe(words: Sequence[str], options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of the table for a command; empty if it names no model of it.

    Args:
        words: of the command.
        options: of the command, by name.
    """
    table: dict[str, Any] = json.loads(_TABLE.read_text("utf-8"))
    names = (*words, str(options.get("model")))
    name = next((each for each in names if each in table["recipes"]), None)
    if name is None or Path(name).exists():
        return []
    settings = table["recipes"][name]
    given = options.get("speculative-config")
    given = given if isinstance(given, Mapping) else {}
    method = str(given.get("method", options.get("spec-method", "")))
    method = "mtp" if method.endswith("_mtp") else method
    kmax = given.get("num_speculative_tokens", options.get("spec-tokens"))
    same = [row for row in settings if row["method"] == method]
    rows = [("by table", f"{name}, as vLLM {table['vllm']} judged it elsewhere")]
    if not same:
        known = ", ".join(dict.fromkeys(row["method"] for row in settings))
        said = f"not known: the table has {known} with this model, and the command {method}"
        if not method:
            said = "nothing: the command has no drafter; add --speculative-config"
        return [*rows, ("steered", said)]
    if str(kmax).isdecimal():  # what is steered depends on the method, not on K
        rows.append(("note", f"the table's K: {', '.join(str(row['k']) for row in same)}"))
        same = [{**same[0], "k": kmax}]
    for row in same:
        rows.append(("steered", f"{row['method']}, Kmax {row['k']}: {row['steered']}"))
        for version, found in row.get("graphs", {}).items():
            said = "; ".join(f"{_GRAPHS[gpu]}: {what}" for gpu, what in found.items())
            if said:
                rows.append((f"full graphs, {version}", said))
    return rows
