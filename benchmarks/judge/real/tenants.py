"""What one client's hints take from the others, with a real vLLM on a modelled device.

    python -m benchmarks.judge.real.tenants --models FOLDER

Each client sends its own texts, one request after the other. One of them, the attacker, sends
hints. A row has the tokens per second of the victims and of the attacker over those of the row in
which the attacker sends no hints, after a run of the same load in which the policy has learned, and
the share of the steps whose plan a latency target has changed. The server honours every hint.
Targets are shares of the attacker's own time per token without hints. The operator's bound on what
targets take from others (`tpot_allowance`) is .02 by default; some rows have another.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_spec.engines.hints import KEY
from adaptive_spec.policies.optional.tpot_targets import RAISED
from adaptive_spec.step import SpecPlan, StepContext
from benchmarks.bench_pair.build import build
from benchmarks.bench_pair.prompts import Job, endless_jobs, load_prompts

from ..arms import parse_arm
from ..device import device
from ..setup import V1, Setup, environment
from .vllm import VllmEngine

HONOURED = ("off", "k_cap", "task", "tpot_ms")
ATTACKS: dict[str, dict[str, Any]] = {
    "no hints": {},
    "off": {"off": 1},
    "tpot_ms 0.001": {"tpot_ms": 0.001},
    "tpot_ms 0.001, k_cap 1": {"tpot_ms": 0.001, "k_cap": 1},
    "k_cap 10**9, tpot_ms 1e300": {"k_cap": 10**9, "tpot_ms": 1e300},
    "new task label each": {"task": "new-"},
    "target .95 of its own": {"share": 0.95},
    "target .8 of its own": {"share": 0.8},
    "target .5 of its own": {"share": 0.5},
}
"""Hints of the attacker; `share`: `tpot_ms` as a share of its time per token without hints."""
ALLOWANCES = 0.02, 0.25
"""Rows with `share` are run with each of these bounds."""
TOKENS, REQUESTS_EACH, TEXTS = 64, 12, 24
STEADY = 0.2, 0.9
"""Shares of the victims' tokens between which rates are measured."""


class Rates(NamedTuple):
    """Tokens per second of one victim and of the attacker, and steps that a target has changed."""

    victim: float
    attacker: float
    changed: float = 0.0


def rates(engine: VllmEngine, victims: int, hints: dict[str, Any]) -> Rates:
    """Serve the load once."""
    clock, jobs = engine.recorder.clock, _jobs(victims + 1)
    reasons = _count_reasons(engine)
    wanted = victims * REQUESTS_EACH * TOKENS
    client_of: dict[int, int] = {}
    live: set[int] = set()
    by_victims, of_attacker = [0], [0]
    times = [clock()]

    def send(client: int) -> None:
        job = next(jobs[client])
        own = {f"{KEY}_{name}": value for name, value in hints.items()} if client == 0 else {}
        if "task" in hints and client == 0:
            own[f"{KEY}_task"] = f"{hints['task']}{job.number}"
        engine.submit(job, 0.0, own)
        live.add(job.number)
        client_of[job.number] = client

    for client in range(victims + 1):
        send(client)
    while live:
        victim = attacker = 0
        for number, tokens, finished in engine.step():
            if client_of[number] == 0:
                attacker += len(tokens)
            else:
                victim += len(tokens)
            if finished:
                live.discard(number)
                if by_victims[-1] + victim < wanted:
                    send(client_of[number])
        by_victims.append(by_victims[-1] + victim)
        of_attacker.append(of_attacker[-1] + attacker)
        times.append(clock())
    found = _between(times, by_victims, of_attacker, victims, wanted)
    changed = sum(count for reason, count in reasons.items() if RAISED in reason)
    return found._replace(changed=changed / reasons.total())


def _count_reasons(engine: VllmEngine) -> Counter[str]:
    """Count the reasons of the plans from now on."""
    policy, reasons = engine.controller.policy, Counter[str]()
    plan = type(policy).plan

    def counted(context: StepContext) -> SpecPlan:
        made: SpecPlan = plan(policy, context)
        reasons[made.reason] += 1
        return made

    policy.plan = counted
    return reasons


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


def _jobs(clients: int) -> list[Iterator[Job]]:
    """Return the requests of each client: its own texts, over and over."""
    texts = list(itertools.islice(endless_jobs(load_prompts(), TOKENS, 7), TEXTS * clients))

    def of_client(client: int) -> Iterator[Job]:
        for turn, job in enumerate(itertools.cycle(texts[client::clients])):
            yield Job(job.kind, turn * clients + client, job.prompt, TOKENS)

    return [of_client(client) for client in range(clients)]


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
        config={"hints": list(HONOURED)},
        most_requests=max(given.victims) + 1,
    )
    engine = VllmEngine(setup)
    print("| victims | attacker's hints | allowance | victims | attacker | steps changed |")
    print("| --- | --- | --- | --- | --- | --- |")
    for victims in given.victims:
        base: dict[float, Rates] = {}
        for (name, hints), allowance in itertools.product(ATTACKS.items(), ALLOWANCES):
            if hints and "share" not in hints and allowance != ALLOWANCES[0]:
                continue
            if (share := hints.get("share")) is not None:
                hints = {"tpot_ms": share * 1e3 / base[allowance].attacker}
            options = json.dumps({"tpot_allowance": allowance})
            engine.use(parse_arm(f"policy:goodput={options}"), device(given.device))
            rates(engine, victims, hints)
            found = rates(engine, victims, hints)
            without = base.setdefault(allowance, found)
            over = found.victim / without.victim, found.attacker / without.attacker
            print(
                f"| {victims} | {name} | {allowance} | {over[0]:.3f} | {over[1]:.3f} "
                f"| {found.changed:.1%} |",
                flush=True,
            )
    engine.close()


if __name__ == "__main__":
    main()
