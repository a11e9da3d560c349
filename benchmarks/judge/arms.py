"""The arms of a comparison: no speculation, each static K, tables, other rules, adaptive-spec."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adaptive_spec.adapters.vllm.graph_ladder import capture_sizes, rungs
from adaptive_spec.config import Audit
from adaptive_spec.errors import ConfigError

from .device import Graphs
from .oracle import ORACLE, OraclePolicy

MOST_REQUESTS = 512
LARGEST_CAPTURED = 512
"""Tokens; vLLM's default on Hopper."""

NONE, GOODPUT, LADDER = "none", "goodput", "ladder"
SGLANG_RULE, SGLANG_LIST = "sglang-rule", "sglang-list"
"""SGLang's own controller, with its default file, and with one list of candidates for all batches;
on SGLang's scheduler only."""
TABLE_CELL, TABLE_CONSTANT, TIERS = "table-cell", "table-constant", "sglang-tiers"
NO_AUDIT = Audit(share=0.0)
Table = list[tuple[int, int, int]]
"""Ranges of batch sizes, both ends included, and their K."""
_TIERS = {
    "tiers": [
        {"batch_size": 1, "candidate_steps": [1, 3, 5, 7]},
        {"batch_size": 8, "candidate_steps": [0, 1, 3], "down_hysteresis": 0.0},
        {"batch_size": 31, "candidate_steps": [0, 1], "down_hysteresis": 0.0},
        {"batch_size": 61, "candidate_steps": [0], "down_hysteresis": 0.0},
    ],
    "initial_steps": 3,
}
"""SGLang's default candidates. Its tiers begin at captured batch sizes, 31 and 61 in place of the
32 and 64 of its configuration."""
_BASELINES = "adaptive_spec.sim.baselines"
_SGLANG = f"{_BASELINES}.engines.sglang_ema:SGLangEmaPolicy"
_OTHERS = {
    "vllm-av": (
        "vLLM's adaptive verification",
        f"{_BASELINES}.engines.vllm_adaptive_verification:VllmAdaptiveVerificationPolicy",
    ),
    "sglang-throughput": (
        "SGLang's throughput rule",
        f"{_BASELINES}.engines.sglang_throughput:SGLangThroughputPolicy",
    ),
    "turbospec": ("TurboSpec", f"{_BASELINES}.papers.turbospec:TurboSpecPolicy"),
    "nightjar": ("Nightjar", f"{_BASELINES}.papers.nightjar:NightjarPolicy"),
    "cascade": ("Cascade", f"{_BASELINES}.papers.cascade:CascadePolicy"),
}
"""Rules of others by arm: title and policy."""


@dataclass(frozen=True)
class Arm:
    """One way to speculate.

    Attributes:
        name: in results, and on the command line.
        title: for people.
        k: the fixed K; -1: no drafter at all; None where something else decides.
        table: vLLM's `num_speculative_tokens_per_batch_size`.
        policy: of adaptive-spec; empty: it is off.
        options: of the policy.
        confidence: the drafter's confidence is read.
        graphs: of the target's pass, in place of the device's.
        capability: fields of the capability that the adapter finds, in place of its own.
        seed: of the policy.
        state: folder of learned state.
        fleet: folder that replicas share.
        trace: folder of step traces.
        shadow_share: 0: the policy decides; else vLLM does, and another K runs in this share of
            the steps.
        audit: blocks of another arm; none, so that figures of a policy are its own.
        prepare: called with the engine after each attachment.
        second_source: drafts are looked up, too.
        again: run once more with what it has learned.
    """

    name: str
    title: str
    k: int | None = None
    table: Table | None = None
    policy: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    confidence: bool = True
    graphs: Graphs | None = None
    capability: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    state: str = ""
    fleet: str = ""
    trace: str = ""
    shadow_share: float = 0.0
    audit: Audit = NO_AUDIT
    prepare: Callable[[Any], None] | None = None
    second_source: bool = False
    again: bool = True

    @property
    def learns(self) -> bool:
        """Return whether it runs twice: with nothing learned, and with the state of that run."""
        return bool(self.policy) and self.again


def _show_script(engine: Any) -> None:
    engine.controller.policy.show(engine.script.texts, engine.recorder)


_POLICIES = {
    GOODPUT: Arm(GOODPUT, "adaptive-spec", policy="goodput"),
    "history": Arm("history", "without confidence", policy="goodput", confidence=False),
    "one-k": Arm("one-k", "one K per batch", policy="goodput", graphs=Graphs(kind="uniform")),
    LADDER: Arm(LADDER, "one K per batch, of the ladder", policy="goodput"),
    "no-cold": Arm("no-cold", "without OFF-cold", policy="goodput", capability={"cold_off": False}),
    "bandit": Arm("bandit", "policy bandit", policy="bandit"),
    "both": Arm("both", "two sources", policy="goodput", second_source=True),
    "regression": Arm("regression", "policy regression", policy="regression"),
    "off": Arm("off", "adaptive-spec, switched off", policy="off", again=False),
    ORACLE: Arm(
        ORACLE,
        "step-wise oracle",
        policy=f"{OraclePolicy.__module__}:{OraclePolicy.__name__}",
        prepare=_show_script,
        again=False,
    ),
    TIERS: Arm(TIERS, "SGLang's tiers", policy=_SGLANG, options=_TIERS, again=False),
    **{
        name: Arm(name, title, policy=policy, again=False)
        for name, (title, policy) in _OTHERS.items()
    },
}
OTHERS = (TABLE_CONSTANT, TIERS, *_OTHERS)
"""Arms that are rules of others."""


def parse_arm(name: str) -> Arm:
    """Return the arm of this name.

    ``none``, ``k0`` and up (``k0``: vLLM keeps the drafter in step), ``table:1-4=6,5-256=2``,
    ``fixed0`` and up (the same by adaptive-spec), ``off``, ``goodput``, ``history``, ``one-k``,
    ``ladder``, ``no-cold``, ``both``, ``bandit``, ``regression``, ``sglang-tiers``,
    ``oracle``; on SGLang's scheduler ``sglang-rule`` and ``sglang-list``; and ``policy:NAME`` or
    ``policy:NAME={options as JSON}``.

    Raises ConfigError for a name that is none.
    """
    if name == NONE:
        return Arm(name, "no speculation", k=-1)
    if match := re.fullmatch(r"k(\d+)", name):
        return Arm(name, f"static K = {match[1]}", k=int(match[1]))
    if match := re.fullmatch(r"fixed(\d+)", name):
        options = {"k": int(match[1])}
        title = f"adaptive-spec with K = {match[1]}"
        return Arm(name, title, policy="static", options=options, again=False)
    if match := re.fullmatch(r"table:((?:\d+-\d+=\d+,?)+)", name):
        ranges = [tuple(map(int, re.split("[-=]", part))) for part in match[1].split(",")]
        return Arm(name, "vLLM's table", table=[(a, b, k) for a, b, k in ranges])
    if name in (SGLANG_RULE, SGLANG_LIST):
        title = "SGLang's rule" if name == SGLANG_RULE else "SGLang's rule, one list of K"
        return Arm(name, title)
    if name in _POLICIES:
        return _POLICIES[name]
    if match := re.fullmatch(r"policy:([\w.:]+)(?:=(\{.*\}))?", name):
        options = json.loads(match[2] or "{}")
        return Arm(name, f"policy {match[1]}", policy=match[1], options=options)
    raise ConfigError(
        f"unknown arm {name!r}: there are {NONE}, k0 and fixed0 and up, table:FROM-TO=K,..., "
        f"{TABLE_CELL}, {TABLE_CONSTANT}, {', '.join(_POLICIES)}, {SGLANG_RULE}, "
        f"{SGLANG_LIST} "
        "and policy:NAME={OPTIONS}"
    )


def ladder_graphs(kmax: int) -> Graphs:
    """Graphs that the adapter captures where attention has none for batches whose K differ."""
    values = rungs(kmax, (), most=MOST_REQUESTS)
    sizes = tuple(capture_sizes(values, MOST_REQUESTS, LARGEST_CAPTURED))
    return Graphs(kind="ladder", ladder=values, sizes=sizes)


def is_static(name: str) -> bool:
    """Return whether an arm is a fixed K of 1 or more."""
    return re.fullmatch(r"k[1-9]\d*", name) is not None


def table_name(ranges: Table) -> str:
    """Return the arm of a table."""
    return "table:" + ",".join(f"{low}-{high}={k}" for low, high, k in ranges)
