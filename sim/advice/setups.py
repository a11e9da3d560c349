"""Set-ups that advice compares, and the lines that configure them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from adaptive_spec.sim.baselines.engines.batch_table import tuned_table
from adaptive_spec.sim.baselines.engines.tensorrt_llm_schedule import scheduled_k

NO_SPECULATION = "none"
OURS = "goodput"
TABLE = "vLLM table"
SCHEDULE = "TensorRT-LLM schedule"
CANDIDATES = "SGLang candidates"

LOOK_UPS = ("ngram", "suffix")
_ADAPTIVE = "--speculative-adaptive --speculative-adaptive-config FILE, in FILE"

Speeds = Mapping[int, Mapping[int, float]]
"""Tokens per second by load and K."""


class SetUp(msgspec.Struct, frozen=True, kw_only=True):
    """One way to configure speculation.

    Attributes:
        name: short name, unique.
        policy, options: the policy that simulates it.
        lines: what to paste, one line each.
    """

    name: str
    policy: str
    options: dict[str, Any] = {}
    lines: list[str] = []

    def fixed_k(self, clients: int) -> int | None:
        """K of all requests at a load; None if it follows what is learned."""
        if self.policy == "batch_table":
            table: list[tuple[int, int, int]] = self.options["table"]
            return next(k for first, _, k in reversed(table) if first <= clients)
        if self.policy == "trtllm_schedule":
            return scheduled_k(self.options["schedule"], clients)
        return {"off": 0, "static": self.options.get("k")}.get(self.policy)

    @property
    def keeps_drafter_warm(self) -> bool:
        """The drafter's pass runs at K = 0, too."""
        return self.policy == "batch_table"


def no_speculation() -> SetUp:
    """No drafter at all."""
    return SetUp(
        name=NO_SPECULATION,
        policy="off",
        lines=["leave out --speculative-config (SGLang: --speculative-algorithm)"],
    )


def static(k: int, engine: str = "vllm", drafter: str = "eagle") -> SetUp:
    """One K for all steps."""
    line = {
        "vllm": f'--speculative-config with "num_speculative_tokens": {k}',
        "sglang": _sglang_flags(k, drafter),
        "tensorrt-llm": f"speculative_config: max_draft_len: {k}",
    }
    return SetUp(name=f"K = {k}", policy="static", options={"k": k}, lines=[line[engine]])


def _sglang_flags(k: int, drafter: str) -> str:
    """SGLang's flags of a chain of K drafts; with only some of them it may not start."""
    nodes = f"--speculative-num-draft-tokens {k + 1}"
    if drafter in LOOK_UPS:
        return f"{nodes} --speculative-ngram-max-bfs-breadth 1"
    return f"--speculative-num-steps {k} --speculative-eagle-topk 1 {nodes}"


def warm_zero() -> SetUp:
    """K = 0 with the drafter kept in step, as vLLM's table and SGLang's candidates run it."""
    return SetUp(name="K = 0, drafter warm", policy="batch_table", options={"table": [[1, 1, 0]]})


def ours(kmax: int, engine: str = "vllm", drafter: str = "eagle") -> SetUp:
    """This package's default policy."""
    option = json.dumps({"adaptive_spec": {"mode": "on"}})
    if drafter in LOOK_UPS:
        steered = [f"  --speculative-algorithm ADAPTIVE_NGRAM {_sglang_flags(kmax, drafter)}"]
    elif drafter == "draft_model":
        steered = [f"  {_sglang_flags(kmax, drafter)}"]
    else:
        candidates = json.dumps({"1": {"candidate_steps": list(range(kmax + 1))}})
        steered = [f"  {_ADAPTIVE}", f"  {candidates}"]
    lines = {
        "vllm": [
            f'VLLM_PLUGINS=adaptive_spec vllm serve ...   (keep "num_speculative_tokens": {kmax})',
            f"  --additional-config '{option}'",
        ],
        "sglang": [
            "SGLANG_PLUGINS=adaptive_spec ADAPTIVE_SPEC_CONFIG=FILE, in FILE",
            '  {"mode": "on"}',
            *steered,
        ],
        "tensorrt-llm": ["TLLM_ADAPTIVE_SPEC=1 trtllm-serve ..."],
    }
    return SetUp(name=OURS, policy="goodput", lines=lines[engine])


def native(engine: str, speeds: Speeds, without_drafter: Speeds) -> list[SetUp]:
    """Return what the engine itself offers for several loads, tuned to these speeds.

    Several for SGLang, of which one is to be chosen.

    Args:
        engine: of `doctor_rows.ENGINES`.
        speeds: with the drafter's state kept current at K = 0.
        without_drafter: the same with no drafter pass at K = 0.
    """
    if engine == "sglang":
        return sglang_lists(speeds)
    if engine == "tensorrt-llm":
        return [tensorrt_llm_schedule(without_drafter)]
    return [vllm_table(speeds)]


def varies_k(engine: str, drafter: str) -> bool:
    """Return whether the engine itself has a K by load; SGLang has for EAGLE and MTP only."""
    return engine != "sglang" or drafter not in (*LOOK_UPS, "draft_model")


def vllm_table(speeds: Speeds) -> SetUp:
    """K by batch size with the best K of each load, the drafter warm at K = 0."""
    table = [list(row) for row in tuned_table(speeds)]
    kmax = max(row[2] for row in table)
    return SetUp(
        name=TABLE,
        policy="batch_table",
        options={"table": table},
        lines=[
            f'--speculative-config with "num_speculative_tokens": {max(kmax, 1)},',
            f'  "num_speculative_tokens_per_batch_size": {json.dumps(table)}',
        ],
    )


def tensorrt_llm_schedule(speeds: Speeds) -> SetUp:
    """K by batch size, with no drafter pass at K = 0."""
    schedule = [[last, k] for _, last, k in tuned_table(speeds)]
    while len(schedule) > 1 and schedule[-1][1] == 0:
        schedule.pop()  # beyond the last entry K is 0 anyway
    text = ", ".join(f"{last}: {k}" for last, k in schedule)
    return SetUp(
        name=SCHEDULE,
        policy="trtllm_schedule",
        options={"schedule": schedule},
        lines=[f"speculative_config: draft_len_schedule: {{{text}}}"],
    )


def sglang_lists(speeds: Speeds) -> list[SetUp]:
    """SGLang's tiers with three widths of candidates around the best K of each load.

    SGLang ships no tuning of its own; widths 0, 1 and all cover "one K a tier" to "any K".
    """
    kmax = max(k for by_k in speeds.values() for k in by_k)
    table = tuned_table(speeds)
    found = []
    for width in (0, 1, kmax):
        tiers = [
            {
                "batch_size": first,
                "candidate_steps": list(range(max(k - width, 0), min(k + width, kmax) + 1)),
            }
            for first, _, k in table
        ]
        config = {
            str(tier["batch_size"]): {"candidate_steps": tier["candidate_steps"]} for tier in tiers
        }
        found.append(
            SetUp(
                name=CANDIDATES,
                policy="sglang_ema",
                options={"tiers": tiers},
                lines=[
                    _ADAPTIVE,
                    f"  {json.dumps(config)}",
                ],
            )
        )
    return found
