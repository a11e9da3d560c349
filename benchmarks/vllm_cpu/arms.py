"""What is compared, and which engine process serves which arm.

Four engines serve all arms but the checks:

* `none`: no drafter is configured. True no speculation.
* `vllm`: vLLM's own speculation with Kmax, without our plugin. A static K is vLLM's table of K by
  batch size (`num_speculative_tokens_per_batch_size`) with one row; Kmax has no table.
* `plugin`: the same with adaptive-spec.
* `plugin-history`: adaptive-spec without reading the drafter's confidence.

Two more show what a second source of drafts is worth: `plugin-both`, which looks drafts up beside
the drafter's, and `plugin-suffix`, where vLLM's suffix decoding is the only source. Both look in
the outputs of other requests, too.

The checks show what that sharing is worth: `own-engineN` configures num_speculative_tokens = N in
an engine of its own, `pluginN` runs our plugin with the policy `static`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .errors import BenchmarkError

KMAX = 6
NONE, SCHEDULE, OURS, OURS_COLD = "none", "schedule", "ours", "ours-cold"
OURS_HISTORY = "ours-history"
OURS_BOTH, OURS_SUFFIX = "ours-both", "ours-suffix"
STATIC = tuple(f"static{k}" for k in range(1, KMAX + 1))
DEFAULT_ARMS = (NONE, *STATIC, SCHEDULE, OURS, OURS_HISTORY, OURS_COLD)
PLUGIN_ENGINE, SUFFIX_ENGINE = "plugin", "plugin-suffix"
PLUGIN_ENGINES: dict[str, dict[str, Any]] = {
    PLUGIN_ENGINE: {},
    "plugin-history": {"confidence": False},
    "plugin-both": {"second_source": {"other_requests": True}},
    SUFFIX_ENGINE: {},
}
"""Engines with our plugin, and its configuration."""


@dataclass(frozen=True)
class Arm:
    """One way to speculate.

    Attributes:
        name: as on the command line.
        title: as in tables.
        engine: key of the engine process that serves it.
        k: the fixed K; None where there is none.
        policy: policy of our plugin, for arms of the engine `plugin`.
        fresh: the policy has learned nothing when a cell begins.
    """

    name: str
    title: str
    engine: str
    k: int | None = None
    policy: str | None = None
    fresh: bool = False

    @property
    def learns(self) -> bool:
        """Does it go on from what it has learned in earlier cells?"""
        return self.policy is not None and not self.fresh


def parse_arm(name: str) -> Arm:
    """The arm of this name. Raises BenchmarkError for a name that is none."""
    if name == NONE:
        return Arm(name, "no speculation", "none", 0)
    if name == SCHEDULE:
        return Arm(name, "vLLM's schedule, tuned", "vllm")
    if name == OURS:
        return Arm(name, "adaptive-spec", PLUGIN_ENGINE, policy="goodput")
    if name == OURS_HISTORY:
        return Arm(name, "adaptive-spec, history only", "plugin-history", policy="goodput")
    if name == OURS_BOTH:
        return Arm(name, "adaptive-spec, two sources", "plugin-both", policy="goodput")
    if name == OURS_SUFFIX:
        return Arm(name, "adaptive-spec, suffix alone", SUFFIX_ENGINE, policy="goodput")
    if name == OURS_COLD:
        return Arm(name, "adaptive-spec, cold", PLUGIN_ENGINE, policy="goodput", fresh=True)
    match = re.fullmatch(r"(static|plugin|own-engine)(\d+)", name)
    if match and 1 <= int(match[2]) <= KMAX:
        kind, k = match[1], int(match[2])
        if kind == "static":
            return Arm(name, f"static K = {k}", "vllm", k)
        if kind == "plugin":
            title = f"adaptive-spec, policy static K = {k}"
            return Arm(name, title, PLUGIN_ENGINE, k, policy="static", fresh=True)
        return Arm(name, f"static K = {k}, own engine", name, k)
    raise BenchmarkError(
        f"unknown arm {name!r}: there are {NONE}, static1 to static{KMAX}, {SCHEDULE}, {OURS}, "
        f"{OURS_HISTORY}, {OURS_COLD}, {OURS_BOTH}, {OURS_SUFFIX}, "
        f"and for checks plugin1 to plugin{KMAX} and own-engine1 to "
        f"own-engine{KMAX}"
    )
