"""What one client's hints take from the others, with a real vLLM on a modelled device.

    python -m benchmarks.virtual_device.tenants --models FOLDER

Clients send one request after the other. One of them, the attacker, sends hints; its texts, and the
texts of the other clients, are the same in every row. A row has the tokens per second of the
victims and of the attacker over those of the row in which the attacker sends no hints, after a run
of the same load in which the policy has learned. The server honours every hint.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_spec.engines.hints import KEY
from benchmarks.bench_pair.build import build
from benchmarks.bench_pair.prompts import load_prompts
from demo.traffic import Job, endless_jobs

from .arms import parse_arm
from .device import device
from .setup import V1, Setup, environment
from .vllm_engine import VllmEngine

HONOURED = ("off", "k_cap", "task", "tpot_ms")
ATTACKS: dict[str, dict[str, Any]] = {
    "no hints": {},
    "tpot_ms 0.001": {"tpot_ms": 0.001},
    "tpot_ms 2": {"tpot_ms": 2.0},
    "tpot_ms 3": {"tpot_ms": 3.0},
    "tpot_ms 4": {"tpot_ms": 4.0},
    "tpot_ms 0.001, k_cap 1": {"tpot_ms": 0.001, "k_cap": 1},
    "off": {"off": 1},
    "k_cap 10**9, tpot_ms 1e300": {"k_cap": 10**9, "tpot_ms": 1e300},
    "new task label each": {"task": "new-"},
}
TOKENS, REQUESTS_EACH = 64, 12
STEADY = 0.2, 0.9
"""Shares of the victims' tokens between which rates are measured."""


class Rates(NamedTuple):
    """Tokens per second of one victim and of the attacker."""

    victim: float
    attacker: float


def rates(engine: VllmEngine, victims: int, hints: dict[str, Any]) -> Rates:
    """Serve the load once."""
    clock, jobs = engine.recorder.clock, _jobs()
    wanted = victims * REQUESTS_EACH * TOKENS
    attackers: set[int] = set()
    live: set[int] = set()
    by_victims, of_attacker = [0], [0]
    times = [clock()]

    def send(*, attacker: bool) -> None:
        job = next(jobs)
        own = {f"{KEY}_{name}": value for name, value in hints.items()} if attacker else {}
        if "task" in hints and attacker:
            own[f"{KEY}_task"] = f"{hints['task']}{job.number}"
        engine.submit(job, 0.0, own)
        live.add(job.number)
        if attacker:
            attackers.add(job.number)

    send(attacker=True)
    for _ in range(victims):
        send(attacker=False)
    while live:
        victim = attacker = 0
        for number, tokens, finished in engine.step():
            if number in attackers:
                attacker += len(tokens)
            else:
                victim += len(tokens)
            if finished:
                live.discard(number)
                if by_victims[-1] + victim < wanted:
                    send(attacker=number in attackers)
        by_victims.append(by_victims[-1] + victim)
        of_attacker.append(of_attacker[-1] + attacker)
        times.append(clock())
    return _between(times, by_victims, of_attacker, victims, wanted)


def _between(
    times: Sequence[float],
    by_victims: Sequence[int],
    of_attacker: Sequence[int],
    victims: int,
    wanted: int,
) -> Rates:
    first, last = (
        next(place for place, tokens in enumerate(by_victims) if tokens >= share * wanted)
        for share in STEADY
    )
    seconds = times[last] - times[first]
    return Rates(
        (by_victims[last] - by_victims[first]) / seconds / victims,
        (of_attacker[last] - of_attacker[first]) / seconds,
    )


def _jobs() -> Iterator[Job]:
    jobs = itertools.cycle(list(itertools.islice(endless_jobs(load_prompts(), TOKENS, 7), 96)))
    return (Job(job.kind, place, job.prompt, TOKENS) for place, job in enumerate(jobs))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=Path, required=True, help="folder of the bench models")
    parser.add_argument("--device", default="h100-8b")
    parser.add_argument("--method", default="draft_model")
    parser.add_argument("--victims", type=int, nargs="+", default=[7, 3])
    given = parser.parse_args(arguments)
    for name, value in environment(V1).items():
        os.environ.setdefault(name, value)
    build(given.models, ("target", "draft"))
    setup = Setup(
        models=str(given.models),
        engine=V1,
        method=given.method,
        device=device(given.device),
        config={"hints": list(HONOURED)},
        most_requests=max(given.victims) + 1,
    )
    engine = VllmEngine(setup)
    print("| victims | attacker's hints | victims | attacker |\n| --- | --- | --- | --- |")
    for victims in given.victims:
        base: Rates | None = None
        for name, hints in ATTACKS.items():
            engine.use(parse_arm("goodput"))
            rates(engine, victims, hints)
            found = rates(engine, victims, hints)
            base = base or found
            over = found.victim / base.victim, found.attacker / base.attacker
            print(f"| {victims} | {name} | {over[0]:.3f} | {over[1]:.3f} |", flush=True)
    engine.close()


if __name__ == "__main__":
    main()
