"""The scripted engine against the real one, on the same requests.

    python -m benchmarks.judge.real.against [--models FOLDER] [--results FILE]
    PYTHONPATH=tests/sglang/stand_in python -m benchmarks.judge.real.against --sglang

in the environment of the engine. A real vLLM or SGLang answers a load with the small models. From
every position of its texts the draft model drafts, and what follows in the text is right: an exact
record, with the drafter's probabilities. The scripted engine plays it, with the same requests in
the same order. Both are priced by the same device, over the whole load. Real runs are kept in
out/judge_real; they take some 12 minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from adaptive_spec.sim.line_file import KeyedFile
from benchmarks.bench_pair.build import build

from ..arms import GOODPUT, parse_arm
from ..device import Device, Work, device
from ..engines import SGLANG, VLLM, Engine, EngineKind
from ..processes import ROOT
from ..script import Lines
from ..scripted_vllm import ENVIRONMENT, ScriptedVllm
from ..setup import KMAX, V1, V1_ASYNC, Setup
from ..traffic import Job, Piece, Traffic
from ..traffic import serve as serve_scripted
from .comparison import Comparison, publish, published, table
from .processes import Group, work_off
from .runs import Run, RunKey
from .texts import acceptance
from .traffic import Load
from .worker import Task

METHODS = "draft_model", "draft_poor"
LOADS = (
    Load(name="1", pieces=((1, 16),)),
    Load(name="16", pieces=((16, 96),)),
    Load(name="64", pieces=((64, 192),)),
    Load(name="64 uneven", pieces=((64, 384),), uneven=True),
)
DEVICES = "h100-8b", "h100-moe"
STATIC = "k1", "k2", "k3", "k6"
WARM = "goodput-warm"


def wanted(models: str, engine: str) -> list[Group]:
    """The real runs."""
    found = []
    for method in METHODS:
        tasks = []
        for load in LOADS:
            for arm in ("k0", *STATIC):
                key = RunKey(engine=engine, method=method, arm=arm, load=load.name)
                tasks.append(Task(key=key, device=device(DEVICES[0]), load=load))
            for name in DEVICES:
                key = RunKey(engine=engine, method=method, arm=GOODPUT, load=load.name, device=name)
                tasks.append(Task(key=key, device=device(name), load=load, warm=WARM, learn=0))
        setup = Setup(models=models, engine=engine, method=method, most_requests=64)
        found.append(Group(setup, tasks))
    return found


def _scripted(kind: EngineKind) -> Engine:
    if kind.engine == SGLANG:
        from ..scripted_sglang import ScriptedSglang

        return ScriptedSglang(kind, graphs=False)  # the real one has none on a CPU
    os.environ.update(ENVIRONMENT)
    return ScriptedVllm(kind)


def compare(runs: Sequence[Run], models: Path, engine_name: str) -> list[Comparison]:
    """Play what the real runs show, and compare."""
    ahead, name_of = engine_name == V1_ASYNC, SGLANG if engine_name == SGLANG else VLLM
    engine = _scripted(EngineKind("draft_model", KMAX, ahead, engine=name_of))
    by_key = {run.key: run for run in runs}
    found = []
    for method in METHODS:
        for load in LOADS:
            plain = by_key[RunKey(engine=engine_name, method=method, arm="k0", load=load.name)]
            lines = Lines(acceptance(plain.texts, models, method, sglang=name_of == SGLANG))
            clients = load.pieces[0][0]
            for name in DEVICES:
                for arm in (*STATIC, GOODPUT):
                    learned = arm == GOODPUT
                    key = RunKey(
                        engine=engine_name,
                        method=method,
                        arm=WARM if learned else arm,
                        load=load.name,
                        device=name if learned else "",
                    )
                    real = by_key[key]
                    engine.use(parse_arm(arm), device(name))
                    steps = _play(engine, lines, plain.texts, clients)
                    if learned:
                        steps = _play(engine, lines, plain.texts, clients)
                    found.append(
                        Comparison(
                            method=method,
                            device=name,
                            clients=load.name,
                            arm=arm,
                            real=round(_rate(real.steps, device(name), method), 2),
                            scripted=round(_rate(steps, device(name), method), 2),
                            real_steps=len(real.steps),
                            scripted_steps=len(steps),
                            ahead=ahead,
                            engine=name_of,
                        )
                    )
    return found


def _play(
    engine: Engine,
    lines: Lines,
    texts: Sequence[tuple[list[int], list[int]]],
    clients: int,
) -> list[Work]:
    """Answer the texts."""
    offsets = lines.data.offsets.tolist()
    made = [
        Job(len(prompt), len(answer), lines, start)
        for (prompt, answer), start in zip(texts, offsets, strict=False)
    ]
    serve_scripted(engine, Traffic(pieces=(Piece(clients, len(made)),), records=()), made)
    return engine.recorder.pop_steps()


def _rate(steps: Sequence[Work], on: Device, method: str) -> float:
    charge = on.charge(method)
    return sum(work.emitted for work in steps) / sum(map(charge.seconds, steps))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both, print the errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    out = ROOT / "out" / "judge_real"
    parser.add_argument("--models", type=Path, default=out / "models")
    parser.add_argument("--workers", type=int, default=1, help="real engines at a time")
    parser.add_argument("--ahead", action="store_true", help="with asynchronous scheduling")
    parser.add_argument("--sglang", action="store_true", help="SGLang, STANDALONE")
    parser.add_argument("--results", type=Path, help="write the comparisons there")
    given = parser.parse_args(arguments)
    out.mkdir(parents=True, exist_ok=True)
    build(given.models, ("target", "draft", "draft_poor"))
    engine = SGLANG if given.sglang else V1_ASYNC if given.ahead else V1
    file = KeyedFile(out / "runs.jsonl", Run, attrgetter("key"))
    groups = [
        Group(
            group.setup, [task for task in group.tasks if not file.found.keys() >= set(task.keys)]
        )
        for group in wanted(str(given.models), engine)
    ]
    for run in work_off([group for group in groups if group.tasks], out, given.workers):
        file.add(run)
    found = compare(list(file.found.values()), given.models, engine)
    print(table(found))
    if given.results is not None:
        kept = published(given.results) if given.results.exists() else []
        kinds = {(each.engine, each.ahead) for each in found}
        kept = [each for each in kept if (each.engine, each.ahead) not in kinds]
        publish(sorted(kept + found, key=lambda each: each.engine != VLLM), given.results)
    worst = max(abs(each.error) for each in found)
    print(f"\nlargest error {100 * worst:.2f} % of {len(found)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
