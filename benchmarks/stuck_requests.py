"""False alarms and delay of the alarms on acceptance, on recorded acceptance.

    python benchmarks/stuck_requests.py [--requests 20000] [--data FOLDER] [--json FILE]

A server is a source of recorded acceptance at one K: 64 requests at a time, each a record from a
random output position on. First come ordinary requests, whose alarms are false. Then come 20
requests of each planted fault, one among 200 ordinary ones, each fault on the server as it was:

* loops: from the middle on all drafts are accepted;
* loops, 1 % missed: the same, but for one draft of a hundred;
* dead: nothing is accepted from the start on;
* damaged: nothing is accepted from the middle on;
* noise: a draft is accepted with a probability of .02 from the start on.

Faulty requests go on for 2,000 tokens. `found` is the share of them that raise the alarm, `delay`
the tokens from the fault to the alarm, median and 90th percentile.

All requests have one task label. At last its drafts are accepted less often, each with a
probability of .75 of what it was: `drift` is how many requests end until that is heard.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from adaptive_spec.operation.label_drift import LabelDrift
from adaptive_spec.operation.stuck_requests import Stuck, StuckRequests
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.data_folder import data_folder

BATCH, BLOCK, KMAX, LONG = 64, 16, 7, 2000
PLANTED, AMONG = 20, 200
KEPT, PORTION, MOST = 0.75, 64, 6400
LLAMA = "unlicensed/acceptance_specdecodebench_llama31_8b_{}.jsonl.gz"
SOURCES = {
    "8B gsm8k, EAGLE": (LLAMA.format("gsm8k"), "eagle"),
    "8B code, EAGLE": (LLAMA.format("instructcoder"), "eagle"),
    "8B gsm8k, n-gram": (LLAMA.format("gsm8k"), "ngram"),
    "8B code, n-gram": (LLAMA.format("instructcoder"), "ngram"),
    "small pair": ("record:good_t0.8", "eagle"),
}
FAULTS = "loops", "loops, 1 % missed", "dead", "damaged", "noise"
Rounds = Iterator[tuple[int, int]]


def ordinary(data: AcceptanceData, k: int, random: np.random.Generator) -> Rounds:
    """(verified, accepted) of each round of a record, from a random position on."""
    which = random.integers(len(data.offsets) - 1)
    at, end = data.offsets[which], data.offsets[which + 1]
    at += random.integers(max((end - at) // 2, 1))
    while at < end:
        kept = min(int(data.accepted[at]), k)
        yield k, kept
        at += kept + 1


def faulty(fault: str, data: AcceptanceData, k: int, random: np.random.Generator) -> Rounds:
    """The same with a fault; the round in which it begins verifies -k."""
    if fault in ("loops", "loops, 1 % missed", "damaged"):
        before = list(ordinary(data, k, random))
        yield from before[: len(before) // 2]
    rate = {"loops": 1.0, "loops, 1 % missed": 0.99, "noise": 0.02}.get(fault, 0.0)
    first, emitted = True, 0
    while emitted < LONG:
        kept = int((random.random(k) < rate).cumprod().sum())
        yield (-k if first else k), kept
        first, emitted = False, emitted + kept + 1


class Heard(StuckRequests):
    """Remembers the names of all that are found."""

    def __init__(self) -> None:
        super().__init__(logging.getLogger("quiet"))
        self._log.setLevel(logging.ERROR)
        self.names: list[str] = []

    def _found(self, kind: int, slot: int, run: int, steps: Sequence[Any]) -> None:
        super()._found(kind, slot, run, steps)
        self.names.append(self.latest[tuple(Stuck)[kind]])


class Server:
    """64 requests at a time; counts alarms and, of faulty requests, the tokens until them."""

    def __init__(self) -> None:
        self.stuck = Heard()
        self.drift = LabelDrift({}, self.stuck._log)
        self.requests = self.false = 0
        self.delays: list[int] = []
        self._live: list[tuple[str, Rounds]] = []
        self._since: dict[str, int] = {}
        self._born = 0

    def serve(self, waiting: Iterator[tuple[bool, Rounds]]) -> None:
        """Serve these requests to the end; each is (faulty, rounds)."""
        exhausted = False
        slots: dict[str, int] = {}
        free = list(range(2 * BATCH))
        steps: list[Any] = []
        while True:
            while len(self._live) < BATCH and not exhausted:
                new = next(waiting, None)
                if new is None:
                    exhausted = True
                    break
                self._born += 1
                name = f"{'bad' if new[0] else 'good'}-{self._born}"
                self._live.append((name, new[1]))
                slots[name] = free.pop(0)
            if not self._live:
                return
            rows = [(name, rounds, next(rounds, None)) for name, rounds in self._live]
            ended = [name for name, _, ran in rows if ran is None]
            running = [(name, ran) for name, _, ran in rows if ran is not None]
            for name, (verified, accepted) in running:
                if verified < 0:
                    self._since[name] = 0
                elif name in self._since:
                    self._since[name] += accepted + 1
            steps.append(_step(running, slots))
            if len(steps) == BLOCK:
                self._count(steps)
                steps = []
            gone = np.array([slots[name] for name in ended], dtype=np.int64)
            self.stuck.ending(gone)
            self.drift.ending(gone)
            for name in ended:
                self.requests += not name.startswith("bad")
                free.append(slots.pop(name))
                self._since.pop(name, None)
            self._live = [(name, rounds) for name, rounds, ran in rows if ran is not None]

    def _count(self, steps: list[Any]) -> None:
        self.stuck.names = []
        self.stuck.finished(steps)
        self.drift.finished(steps)
        for name in self.stuck.names:
            if name in self._since:
                self.delays.append(self._since.pop(name))
            elif name.startswith("good"):
                self.false += 1


def _step(running: list[tuple[str, tuple[int, int]]], slots: dict[str, int]) -> Any:
    context = SimpleNamespace(
        request_ids=[name for name, _ in running],
        slots=np.array([slots[name] for name, _ in running], dtype=np.int64),
        task=np.zeros(len(running), dtype=np.int64),
    )
    outcome = SimpleNamespace(
        slots=context.slots,
        verified=np.array([abs(verified) for _, (verified, _) in running], dtype=np.int64),
        accepted=np.array([accepted for _, (_, accepted) in running], dtype=np.int64),
    )
    return SimpleNamespace(context=context, outcome=outcome)


def measure(data: AcceptanceData, k: int, requests: int, seed: int) -> dict[str, Any]:
    """False alarms of ordinary requests, then what is found of each fault."""
    random = np.random.default_rng(seed)
    server = Server()
    server.serve((False, ordinary(data, k, random)) for _ in range(requests))
    found: dict[str, Any] = {
        "too_long": server.stuck.bounds(),
        "false_drifts": server.drift.count,
    }
    fewer = copy.deepcopy(server)
    learned = copy.deepcopy(server.stuck)
    for fault in FAULTS:
        server.stuck, server.delays = copy.deepcopy(learned), []
        mixed = (
            (bad, faulty(fault, data, k, random) if bad else ordinary(data, k, random))
            for bad in [True, *[False] * AMONG] * PLANTED
        )
        server.serve(mixed)
        delays = server.delays
        found[fault] = {
            "found": len(delays) / PLANTED,
            "delay": [float(np.percentile(delays, each)) for each in (50, 90)] if delays else [],
        }
    found["drift"] = _until_drift(fewer, data, k, random)
    return found | {"requests": server.requests, "false": server.false}


def _until_drift(
    server: Server, data: AcceptanceData, k: int, random: np.random.Generator
) -> int | None:
    """Requests with fewer accepted drafts until the label is said to have drifted."""

    def less(rounds: Rounds) -> Rounds:
        for verified, accepted in rounds:
            yield verified, min(accepted, int(random.geometric(1.0 - KEPT)) - 1)

    before = server.drift.count
    for served in range(PORTION, MOST + 1, PORTION):
        server.serve((False, less(ordinary(data, k, random))) for _ in range(PORTION))
        if server.drift.count > before:
            return served
    return None


def _delays(percentiles: list[float]) -> str:
    return " ".join(f"{each:6.0f}" for each in percentiles)


def main() -> None:
    """Print a line for each server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000, help="ordinary ones of a server")
    parser.add_argument("--ks", default="1,3,7")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder, rows = data_folder(arguments.data), []
    heads = "".join(f"{each:>22}" for each in FAULTS)
    print(f"{'server':28}{'false of':>14}  bounds   {heads}  drift")
    for number, (name, (file, drafts)) in enumerate(SOURCES.items()):
        path = file if file.startswith("record:") else str(folder / file)
        data = load_acceptance([path], drafter_list=drafts, seed=0, kmax=KMAX)
        for k in map(int, arguments.ks.split(",")):
            found = measure(data, k, arguments.requests, 10 * number + k)
            rows.append({"server": name, "k": k, **found})
            bounds = "/".join(str(found["too_long"][kind]) for kind in Stuck)
            shown = "".join(
                f"{found[each]['found']:>8.0%} {_delays(found[each]['delay']):>13}"
                for each in FAULTS
            )
            false = f"{found['false']} of {found['requests']:,}"
            print(
                f"{name + f', K = {k}':28}{false:>14}  {bounds:9}{shown}  {found['drift']}",
                flush=True,
            )
    total = sum(row["false"] for row in rows), sum(row["requests"] for row in rows)
    print(f"false alarms: {total[0]} of {total[1]:,} ordinary requests")
    print(f"false drifts: {sum(row['false_drifts'] for row in rows)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
