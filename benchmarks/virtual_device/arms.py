"""The arms of a comparison: no speculation, each static K, vLLM's own table, adaptive-spec."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from adaptive_spec.errors import ConfigError

KMAX = 6
NONE, TABLE, GOODPUT, BOTH = "none", "table", "goodput", "both"
SGLANG_RULE, SGLANG_LIST = "sglang-rule", "sglang-list"
STATIC = tuple(f"k{k}" for k in range(1, KMAX + 1))
_WARM = "-warm"
Table = list[tuple[int, int, int]]
"""Ranges of batch sizes, both ends included, and their K."""

PADDED = ("varlen", "ladder")
"""Arms whose graphs are of the kind of that name, with captured sizes."""
_PLUGIN: dict[str, tuple[str, dict[str, Any]]] = {
    GOODPUT: ("adaptive-spec", {}),
    "history": ("adaptive-spec, without confidence", {"confidence": False}),
    "one-k": ("adaptive-spec, one K per batch", {}),
    "varlen": ("adaptive-spec, K per request in padded graphs", {}),
    "ladder": ("adaptive-spec, one K per batch, of the ladder", {}),
    BOTH: ("adaptive-spec, two sources", {"second_source": {"other_requests": True}}),
}
"""Title and configuration of the arms with our plugin."""


@dataclass(frozen=True)
class Arm:
    """One way to speculate.

    Attributes:
        name: in results, and on the command line.
        title: for people.
        k: the fixed K; None where there is none.
        table: vLLM's `num_speculative_tokens_per_batch_size`.
        config: configuration of adaptive-spec; None where it is not installed.
        graphs: kind of the target's graphs, where an arm has others than its device: ``uniform``
            and ``ladder`` give all requests of a batch one K, ``varlen`` each its own. Empty: the
            device's.
        warm: the policy has learned at this load before.
    """

    name: str
    title: str
    k: int | None = None
    table: Table | None = None
    config: dict[str, Any] | None = field(default=None)
    graphs: str = ""
    warm: bool = False

    @property
    def adapts(self) -> bool:
        """Whether what it runs depends on the device."""
        return self.config is not None


def parse_arm(name: str) -> Arm:
    """Return the arm of this name.

    ``none``, ``k0`` to ``k6`` (``k0``: vLLM keeps the drafter in step), ``table:1-4=6,5-256=2``,
    ``goodput``, ``history``, ``one-k``, ``varlen``,
    ``ladder``, ``both``, and ``policy:NAME`` or
    ``policy:NAME={options as JSON}``. Those with our plugin begin with nothing learned; ``-warm``
    behind one of them: with what it has learned at the load.

    Raises ConfigError for a name that is none.
    """
    if name == NONE:
        return Arm(name, "no speculation", 0)
    if (match := re.fullmatch(r"k(\d+)", name)) and int(match[1]) <= KMAX:
        return Arm(name, f"static K = {match[1]}", int(match[1]))
    if match := re.fullmatch(r"table:((?:\d+-\d+=\d+,?)+)", name):
        ranges = [tuple(map(int, re.split("[-=]", part))) for part in match[1].split(",")]
        return Arm(name, "vLLM's table, tuned", table=[(a, b, k) for a, b, k in ranges])
    if name in (SGLANG_RULE, SGLANG_LIST):
        title = "SGLang's rule" if name == SGLANG_RULE else "SGLang's rule, one list of K"
        return Arm(name, title)
    plain = name.removesuffix(_WARM)
    learned = plain != name
    if plain in _PLUGIN:
        title, config = _PLUGIN[plain]
        graphs = {"one-k": "uniform"}.get(plain, plain if plain in PADDED else "")
        return Arm(name, title, config=config, graphs=graphs, warm=learned)
    if match := re.fullmatch(r"policy:([\w.:]+)(?:=(\{.*\}))?", plain):
        config = {"policy": match[1], "options": json.loads(match[2] or "{}")}
        return Arm(name, f"policy {match[1]}", config=config, warm=learned)
    raise ConfigError(
        f"unknown arm {name!r}: there are {NONE}, k0 to k{KMAX}, table:FROM-TO=K,..., "
        f"{', '.join(_PLUGIN)} and policy:NAME={{OPTIONS}}"
    )


def warm(arm: str) -> str:
    """Return the arm that has learned at the load before."""
    return f"{arm}{_WARM}"


def table_name(best: dict[int, int], most: int) -> str:
    """Return the arm of vLLM's table for the best K by number of clients.

    Each measured number stands for those up to it, the last one for all above.
    """
    parts, low = [], 1
    sizes = sorted(best)
    for size in sizes:
        high = max(size, most) if size == sizes[-1] else size
        parts.append(f"{low}-{high}={best[size]}")
        low = high + 1
    return f"{TABLE}:{','.join(parts)}"
