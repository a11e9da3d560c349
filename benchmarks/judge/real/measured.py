"""The measured gain of the audit against whole runs, with a real vLLM on a modelled device.

    python -m benchmarks.judge.real.measured --models FOLDER

Clients ask again when answered. vLLM's own K answers the load, then K of the plugin, then that
again with audit blocks. Times are those of the device, so whole runs have no noise.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adaptive_spec.config import Audit
from benchmarks.bench_pair.build import build

from ..arms import Arm
from ..device import device
from ..processes import begin_anew
from ..setup import V1, Setup, environment
from .traffic import Load, serve
from .vllm import VllmEngine

CASES = (4, 1), (1, 4)
"""The engine's own K, and the plugin's."""
SHARE = 0.25
TOKENS = 64


def rate(engine: VllmEngine, arm: Arm, clients: int, requests: int, name: str) -> float:
    """Return tokens per second of an arm."""
    engine.use(arm, device(name))
    load = Load(name=str(clients), pieces=((clients, requests),), tokens=TOKENS)
    serve(engine, load)
    seconds = sum(engine.recorder.seconds)
    return sum(work.emitted for work in engine.recorder.pop_steps()) / seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=Path, required=True, help="folder of the bench models")
    parser.add_argument("--device", default="h100-8b")
    parser.add_argument("--clients", type=int, nargs="+", default=[8])
    parser.add_argument("--requests", type=int, default=150, help="of each client")
    given = parser.parse_args(arguments)
    begin_anew("benchmarks.judge.real.measured", environment(V1))
    build(given.models, ("target", "draft"))
    setup = Setup(
        models=str(given.models),
        engine=V1,
        method="draft_model",
        most_requests=max(given.clients),
    )
    engine = VllmEngine(setup)
    print("| clients | own K | plugin's K | whole runs | blocks | bounds | number |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for clients in given.clients:
        for own, planned in CASES:
            requests = given.requests * clients
            steered: dict[str, Any] = {
                "table": [(1, max(given.clients), own)],
                "policy": "static",
                "options": {"k": planned},
            }
            base = rate(engine, Arm("own", "", k=own), clients, requests, given.device)
            ours = rate(engine, Arm("plugin", "", **steered), clients, requests, given.device)
            audit = Audit(share=SHARE, guard=False)
            audited = Arm("audited", "", audit=audit, **steered)
            rate(engine, audited, clients, requests, given.device)
            found = engine.status()["audit"]["arms"]["engine"]
            bounds = [found.get(name, math.nan) for name in ("low", "high")]
            print(
                f"| {clients} | {own} | {planned} | {ours / base - 1.0:+.1%} "
                f"| {found.get('gain', math.nan):+.1%} | {bounds[0]:+.1%} to {bounds[1]:+.1%} "
                f"| {found['blocks']} |",
                flush=True,
            )
    engine.close()


if __name__ == "__main__":
    main()
