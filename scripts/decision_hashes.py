"""Hash every decision of a few dozen short simulated runs: `python scripts/decision_hashes.py`.

Prints one line per run: a hash of each decision's K per request, depth and mode, the number of
decisions, how many of them were off, and the name. Two versions of the code that print the same
lines decide alike. `make check` compares with `scripts/decisions.txt`; after a change that is to
alter decisions, write that file anew and look at which runs have changed.

    python scripts/decision_hashes.py --against scripts/decisions.txt
    python scripts/decision_hashes.py > scripts/decisions.txt
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from adaptive_spec.sim.engine.options import EngineOptions  # noqa: E402
from adaptive_spec.sim.policy_choice import parse_policy  # noqa: E402
from adaptive_spec.sim.scenario import Phase, Scenario  # noqa: E402
from adaptive_spec.step import Level, Mode  # noqa: E402
from benchmarks.profiles import published_profile  # noqa: E402

TENANTS = """\
tenants:
  - {name: chat, load: closed:6, tpot_ms: 9}
  - {name: batch, load: closed:6}
"""
"""Half of the clients ask for a TPOT that speculation has to keep."""


def _copying(random: np.random.Generator, tokens: int = 300) -> dict[str, Any]:
    """An output with stretches that repeat earlier text, as a record of two sources of drafts."""

    def accepted(right: list[bool]) -> list[int]:
        lengths, run = [], 0
        for token in reversed(right):
            lengths.append(1 + run)
            run = min(run + 1, 20) if token else 0
        return lengths[::-1]

    copies = np.repeat(random.random(tokens // 30) < 0.4, 30)
    model, look_up = random.random(tokens) < 0.6, random.random(tokens) < 0.05 + 0.92 * copies
    return {
        "eagle": accepted(model.tolist()),
        "ngram": accepted(look_up.tolist()),
        "prompt_len": 50,
    }


class Case(NamedTuple):
    """A policy on a scenario."""

    name: str
    policy: str
    scenario: Scenario


def _scenario(tokens: int, /, **changes: Any) -> Scenario:
    engine_fields = set(EngineOptions.__struct_fields__)
    engine = {name: changes.pop(name) for name in list(changes) if name in engine_fields}
    values: dict[str, Any] = {
        "load": "closed:4",
        "acceptance": ("model:good",),
        "drafter": "eagle",
        "hardware": published_profile("h100-llama-8b"),
        "seed": 3,
        **changes,
    }
    return Scenario(engine=EngineOptions(**engine), tokens=tokens, **values)


def cases(folder: Path) -> Iterator[Case]:
    """All runs. Writes a load into `folder`."""
    tenants = folder / "tenants.yaml"
    tenants.write_text(TENANTS)
    copying, random = folder / "copying.jsonl", np.random.default_rng(0)
    rows = [json.dumps(_copying(random)) + "\n" for _ in range(40)]
    copying.write_text("".join(rows))
    recorded: dict[str, Any] = {"acceptance": ("record:good_t0.8",), "drafter": "draft_model"}
    dead: dict[str, Any] = {"acceptance": ("model:dead",)}
    poor: dict[str, Any] = {"acceptance": ("record:poor_t0.8",), "drafter": "draft_model"}
    goodput: dict[str, tuple[int, dict[str, Any]]] = {
        "uniform": (6000, {"level": Level.UNIFORM, "ladder": (0, 1, 3, 6)}),
        "uniform, 32 clients, delay 1": (
            24000,
            {"level": Level.UNIFORM, "delay": 1, "load": "closed:32"},
        ),
        "verify": (6000, {"level": Level.VERIFY}),
        "verify, delay 2, 16 clients": (
            16000,
            {"level": Level.VERIFY, "delay": 2, "load": "closed:16"},
        ),
        "full": (6000, {}),
        "full, one client": (2000, {"load": "closed:1"}),
        "full, delay 1": (6000, {"delay": 1}),
        "full, delay 2, 32 clients": (24000, {"delay": 2, "load": "closed:32"}),
        "confidence": (6000, recorded),
        "confidence, one client": (2000, {**recorded, "load": "closed:1"}),
        "confidence, verify, delay 1": (6000, {**recorded, "level": Level.VERIFY, "delay": 1}),
        "confidence, late": (6000, {**recorded, "late_confidence": True, "delay": 1}),
        "confidence hidden": (6000, {**recorded, "hide_confidence": True}),
        "confidence, synthetic": (6000, {"confidence_auc": 0.85}),
        "poor drafter": (12000, {**poor, "load": "closed:8"}),
        "poor drafter, uniform": (8000, {**poor, "level": Level.UNIFORM}),
        "poor drafter, verify, delay 1": (8000, {**poor, "level": Level.VERIFY, "delay": 1}),
        "dead drafter": (4000, dead),
        "dead drafter, one client, uniform": (
            1000,
            {**dead, "load": "closed:1", "level": Level.UNIFORM},
        ),
        "dead drafter, verify, delay 2": (3000, {**dead, "level": Level.VERIFY, "delay": 2}),
        "dead drafter, dear re-entry": (8000, {**dead, "reentry_seconds": 0.05}),
        "dead then good": (12000, {**dead, "phases": (Phase(at=6.0, files=("model:good",)),)}),
        "dead n-gram": (3000, {**dead, "drafter": "ngram"}),
        "phases, poor then good": (
            16000,
            {
                "acceptance": ("model:poor",),
                "phases": (Phase(at=4.0, files=("model:good",)),),
            },
        ),
        "TPOT targets": (12000, {"load": str(tenants)}),
        "n-gram": (6000, {"drafter": "ngram"}),
        "n-gram, 16 clients, verify": (
            12000,
            {"drafter": "ngram", "level": Level.VERIFY, "load": "closed:16"},
        ),
        "two sources": (
            12000,
            {"acceptance": (str(copying),), "drafter": "hybrid", "load": "closed:8"},
        ),
        "mixture of experts": (
            12000,
            {"hardware": published_profile("h100-qwen3-30b-a3b"), "load": "closed:12"},
        ),
        "little KV": (12000, {"load": "closed:16", "kv_tokens": 6000}),
        "ragged penalty": (8000, {"ragged_penalty": 0.05, "load": "closed:8"}),
        "Poisson arrivals": (8000, {"load": "poisson:6"}),
    }
    for name, (tokens, changes) in goodput.items():
        yield Case(f"goodput: {name}", "goodput", _scenario(tokens, **changes))
    for policy, tokens, changes in (
        ("regression", 6000, recorded),
        ("regression", 6000, {"level": Level.VERIFY, "delay": 1}),
        ("regression", 6000, poor),
        ("bandit", 6000, {}),
        ("bandit", 6000, {"level": Level.VERIFY, "delay": 1}),
        ("bandit", 6000, poor),
        ("static:k=3", 3200, {}),
        ("sglang_ema", 4000, {"level": Level.UNIFORM}),
        ("turbospec", 4000, {"level": Level.VERIFY}),
        ("vllm_adaptive_verification", 4000, {**recorded, "level": Level.VERIFY, "delay": 1}),
    ):
        spelled = ", ".join(
            f"{key} {getattr(value, 'name', value)}" for key, value in changes.items()
        )
        spelled = spelled.replace(str(folder), "").replace("tenants.yaml", "tenants")
        yield Case(f"{policy}: {spelled or 'full'}", policy, _scenario(tokens, **changes))


def decisions(case: Case) -> tuple[int, int, str]:
    """Run a case; return the number of decisions, of those while off, and a hash of all."""
    engine = case.scenario.engine_for(parse_policy(case.policy).build(case.scenario.seed))
    hashed, count, off = hashlib.sha256(), 0, 0
    plan_of = engine.controller.plan

    def plan(context: Any) -> Any:
        nonlocal count, off
        made = plan_of(context)
        count += 1
        off += made.mode in (Mode.OFF_COLD, Mode.OFF_WARM)
        hashed.update(
            f"{made.step} {made.verify.tolist()} {made.draft_depth} {made.mode.value}\n".encode()
        )
        return made

    engine.controller.plan = plan  # type: ignore[method-assign]
    result = case.scenario.run_engine(engine, case.name)
    hashed.update(msgspec.json.encode(result.throughput_tok_s))
    return count, off, hashed.hexdigest()[:16]


def main() -> int:
    """Print the hashes; with ``--against`` tell whether they are those of a file."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--against", type=Path, help="output of an earlier run")
    parser.add_argument("--only", default="", help="only runs whose name contains this")
    arguments = parser.parse_args()
    expected = arguments.against.read_text().splitlines() if arguments.against else None
    different = 0
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor() as pool:
        chosen = [case for case in cases(Path(folder)) if arguments.only in case.name]
        for case, (count, off, digest) in zip(chosen, pool.map(decisions, chosen), strict=True):
            line = f"{digest}  {count:6,} steps {off:6,} off  {case.name}"
            changed = expected is not None and line not in expected
            different += changed
            print(line + ("   DIFFERENT" if changed else ""), flush=True)
    if expected is not None:
        message = f"{different} of these runs decide otherwise; if they should, write the file anew"
        print(message if different else "all decide alike")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
