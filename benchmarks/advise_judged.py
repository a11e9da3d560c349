"""Do the intervals of `adaptive-spec advise` hold what the judge then runs?

    python benchmarks/advise_judged.py [eagle | ngram]    # in the environment `vllm`, two minutes

Three servers of the judge record 1,200 requests each: one runs K = 7, one vLLM's table (both in
mode `shadow`, with another K in 6 % of the steps), one the plugin. From each trace the gains of the
plugin and of the tuned table are predicted over none and over what the engine's own settings run,
and held against the judge's runs of the same requests.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.sim.advice.advice import predict
from adaptive_spec.sim.advice.setups import NO_SPECULATION, OURS
from adaptive_spec.sim.advice.setups import TABLE as TABLE_NAME
from adaptive_spec.sim.advice.values import Prediction
from benchmarks.judge.arms import GOODPUT, NONE, Arm, parse_arm
from benchmarks.judge.device import DEVICES
from benchmarks.judge.engines import EngineKind
from benchmarks.judge.scripted_vllm import ENVIRONMENT, ScriptedVllm
from benchmarks.judge.traffic import Piece, Traffic, jobs, serve

KMAX = 7
SHARE = 0.06
DEVICE = DEVICES["h100-8b"]
PIECES = Piece(8, 200), Piece(32, 400), Piece(96, 600)
RECORDS = {"eagle": "llama:both", "ngram": "llama:code"}
"""Recorded acceptance by method of drafting."""
TRAFFIC = Traffic(pieces=PIECES, records=(RECORDS["eagle"],), longest=512)
TABLE = "table:1-16=5,17-64=3,65-512=1"
RUNS = {"K = 7": f"k{KMAX}", "table": TABLE, "plugin": f"k{KMAX}"}
"""The engine's own settings by trace."""


def speed(engine: ScriptedVllm, traffic: Traffic = TRAFFIC) -> float:
    """Tokens per second until the last request was sent."""
    served = serve(engine, traffic, jobs(traffic, engine.kind.method, KMAX, 1))
    seconds = sum(engine.recorder.seconds[: served.sent])
    return sum(work.emitted for work in engine.recorder.pop_steps()[: served.sent]) / seconds


def record(
    engine: ScriptedVllm, runs: str, folder: Path, *, share: float, traffic: Traffic = TRAFFIC
) -> None:
    """Serve the traffic and write its step trace.

    Args:
        engine: of the judge.
        runs: arm with the engine's own settings.
        folder: of the trace.
        share: of the steps that run another K than these settings; 0: the plugin decides.
        traffic: of the trace.
    """
    plugin = replace(parse_arm(GOODPUT), trace=str(folder), shadow_share=share)
    engine.use(replace(plugin, table=parse_arm(runs).table), DEVICE)
    speed(engine, traffic)
    engine.scheduler.adaptive_spec.close()


def run(engine: ScriptedVllm, arm: Arm, traffic: Traffic = TRAFFIC) -> float:
    """Return the tokens per second of an arm."""
    engine.use(arm, DEVICE)
    if arm.learns:
        speed(engine, traffic)
    return speed(engine, traffic)


def own_set_up(prediction: Prediction) -> Arm:
    """Return the arm of one of the engine's own set-ups, from the lines to paste."""
    if prediction.name != TABLE_NAME:
        return parse_arm(f"k{prediction.name.removeprefix('K = ')}")
    return Arm("tuned", "", table=json.loads(prediction.lines[-1].partition(": ")[2]))


def main() -> int:
    """Record, predict, run and print; return how many intervals do not hold what ran."""
    os.environ.update(ENVIRONMENT)
    method = sys.argv[1] if len(sys.argv) > 1 else "eagle"
    if method not in RECORDS:
        sys.exit(f"no method {method!r}: choose {' or '.join(RECORDS)}")
    traffic = msgspec.structs.replace(TRAFFIC, records=(RECORDS[method],))
    engine = ScriptedVllm(EngineKind(method, KMAX))
    arms = NONE, f"k{KMAX}", TABLE, GOODPUT
    ran = {arm: run(engine, parse_arm(arm), traffic) for arm in arms}
    outside = 0
    print("recorded  set-up      over    predicted               the judge's")
    with tempfile.TemporaryDirectory() as kept:
        for name, runs in RUNS.items():
            folder = Path(kept, name)
            folder.mkdir()
            share = 0.0 if name == "plugin" else SHARE
            record(engine, runs, folder, share=share, traffic=traffic)
            advice = predict([folder], drafter=method).advice
            by_name = {each.name: each for each in advice.predictions}
            found = [(OURS, NO_SPECULATION, by_name[OURS].interval, ran[GOODPUT] / ran[NONE])]
            truths = {OURS: ran[GOODPUT], NO_SPECULATION: ran[NONE]}
            truths[advice.native] = run(engine, own_set_up(by_name[advice.native]), traffic)
            found += [
                (each, "runs", interval, truths[each] / ran[runs])
                for each, interval in advice.over_runs.items()
            ]
            for set_up, over, interval, truth in found:
                assert interval is not None
                bounds = f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"
                holds = interval.low <= truth <= interval.high
                outside += not holds
                said = "" if holds else "  outside"
                print(f"{name:9s} {set_up:11s} {over:7s} {bounds:23s} {truth:.3f}{said}")
    return outside


if __name__ == "__main__":
    sys.exit(main())
