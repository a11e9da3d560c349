"""Do the intervals of `adaptive-spec advise` hold what the judge then runs?

    python benchmarks/advise_judged.py    # in the environment `vllm`, two minutes

Three servers of the judge record 1,200 requests each: one runs K = 7, one vLLM's table (both in
mode `shadow`, with another K in 6 % of the steps), one the plugin. For each trace the gain of the
plugin is predicted, over none and over K = 7, and held against the judge's runs of the same
requests.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import msgspec

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.config import Trace
from adaptive_spec.sim.advice.advice import predict
from adaptive_spec.sim.advice.setups import OURS
from benchmarks.judge.arms import GOODPUT, NONE, parse_arm
from benchmarks.judge.device import DEVICES
from benchmarks.judge.engines import EngineKind
from benchmarks.judge.scripted_vllm import ENVIRONMENT, ScriptedVllm
from benchmarks.judge.traffic import Piece, Traffic, jobs, serve

KMAX = 7
SHARE = 0.06
DEVICE = DEVICES["h100-8b"]
PIECES = Piece(8, 200), Piece(32, 400), Piece(96, 600)
TRAFFIC = Traffic(pieces=PIECES, records=("llama:both",), longest=512)
TABLE = "table:1-16=5,17-64=3,65-512=1"
RECORDED = {"K = 7": ("shadow", ""), "table": ("shadow", TABLE), "plugin": ("on", "")}
"""Mode and table by who records."""


def speed(engine: ScriptedVllm) -> float:
    """Tokens per second until the last request was sent."""
    served = serve(engine, TRAFFIC, jobs(TRAFFIC, "eagle", KMAX, 1))
    seconds = sum(engine.recorder.seconds[: served.sent])
    return sum(work.emitted for work in engine.recorder.take()[: served.sent]) / seconds


def record(engine: ScriptedVllm, mode: str, table: str, folder: Path) -> None:
    """Serve the traffic and write its step trace."""
    from adaptive_spec.adapters.vllm import hooks

    engine.use(parse_arm(GOODPUT), DEVICE)
    if table:
        engine._use_table(parse_arm(table))
    holder = engine.scheduler.vllm_config.scheduler_config
    before = getattr(holder, hooks.ATTRIBUTE)
    trace = Trace(directory=str(folder))
    changed = msgspec.structs.replace(before, mode=mode, shadow_share=SHARE, trace=trace)
    setattr(holder, hooks.ATTRIBUTE, changed)
    engine.restart()
    speed(engine)
    engine.scheduler.adaptive_spec.close()
    setattr(holder, hooks.ATTRIBUTE, before)


def main() -> int:
    """Record, predict, run and print."""
    os.environ.update(ENVIRONMENT)
    engine = ScriptedVllm(EngineKind("eagle", KMAX))
    ran = {}
    for arm in (NONE, f"k{KMAX}", GOODPUT):
        engine.use(parse_arm(arm), DEVICE)
        if arm == GOODPUT:
            speed(engine)  # it learns
        ran[arm] = speed(engine)
    print("recorded  plugin over  predicted               the judge's")
    with tempfile.TemporaryDirectory() as kept:
        for name, (mode, table) in RECORDED.items():
            folder = Path(kept, name)
            folder.mkdir()
            record(engine, mode, table, folder)
            advice = predict([folder], drafter="eagle").advice
            by_name = {each.name: each for each in advice.predictions}
            found = {"none": by_name[OURS].interval, "K = 7": advice.over_kmax[OURS]}
            for over, arm in (("none", NONE), ("K = 7", f"k{KMAX}")):
                interval, truth = found[over], ran[GOODPUT] / ran[arm]
                assert interval is not None
                bounds = f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"
                holds = "" if interval.low <= truth <= interval.high else "  outside"
                print(f"{name:9s} {over:12s} {bounds:23s} {truth:.3f}{holds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
