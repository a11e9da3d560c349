"""One K for two replicas of attention DP, on SGLang's scheduler and the judge's modelled clock.

    python -m benchmarks.attention_dp            # in SGLang's environment; 4 minutes of CPU time

Each replica is a process with SGLang's scheduler, our adapter and requests of its own. They step as
SGLang has them step: where either reads prompts, neither decodes, and one without requests takes
part in the other's passes. A step lasts as long as the slower replica's. Prints the tokens per
second of both, over each fixed K; the adapter runs the largest of the replicas' wishes.

Not reproduced: experts that read the tokens of both replicas in one pass.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from .judge.arms import Arm
from .judge.device import device
from .judge.engines import SGLANG, Emitted, EngineKind
from .judge.processes import begin_anew
from .judge.scripted_sglang import ScriptedSglang
from .judge.sglang_scheduler import next_batch
from .judge.start import environment
from .judge.traffic import Piece, Traffic, jobs, serve

KMAX = 7
STATIC = (0, 1, 2, 3, 5, 7)
SEED = 1


class Cell(NamedTuple):
    """A load of two replicas: pieces of clients, requests and records of each."""

    name: str
    device: str
    pieces: tuple[tuple[Piece, ...], tuple[Piece, ...]]


_LLAMA = ("llama:both",)
CELLS = (
    Cell("16 and 16", "h100-moe", ((Piece(16, 320, _LLAMA),),) * 2),
    Cell("64 and 4", "h100-moe", ((Piece(64, 960, _LLAMA),), (Piece(4, 80, _LLAMA),))),
    Cell("1 and 1", "h100-8b", ((Piece(1, 24, _LLAMA),),) * 2),
    Cell("64 and 64", "h100-8b", ((Piece(64, 960, _LLAMA),),) * 2),
    Cell(
        "16 and 16, accepted .8 and .3",
        "h100-8b",
        ((Piece(16, 320, ("hazard:0.8",)),), (Piece(16, 320, ("hazard:0.3",)),)),
    ),
    Cell(
        "4-96 and 96-4",
        "h100-8b",
        (
            (Piece(4, 60, _LLAMA), Piece(96, 768, _LLAMA)),
            (Piece(96, 768, _LLAMA), Piece(4, 60, _LLAMA)),
        ),
    ),
)


class Partner:
    """The other replica: both tell, and both read the largest. In the place of `Agreement`."""

    size, replicas, decides = 2, True, True

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def largest(self, *values: float) -> list[float]:
        """Return the larger of both replicas' values, one by one."""
        self._connection.send(values)
        return list(map(max, values, self._connection.recv()))

    def settle(self, proposal: int) -> int:
        """Return the K that both run."""
        return int(self.largest(proposal)[0])


class _SharedCharge:
    """Seconds of a step: those of the slower replica."""

    def __init__(self, charge: Any, partner: Partner) -> None:
        self._charge, self._partner = charge, partner

    def seconds(self, work: Any) -> float:
        """Return the seconds; `work` is None without requests."""
        own = 0.0 if work is None else self._charge.seconds(work)
        return self._partner.largest(own)[0]


class _Idle(NamedTuple):
    """A batch of no requests, as SGLang makes it for a replica that steps along."""

    reqs: Sequence[Any] = ()
    is_extend_in_batch: bool = False

    @property
    def forward_mode(self) -> Any:
        """Neither prompts nor decoding."""
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        return ForwardMode.IDLE


class Replica(ScriptedSglang):
    """SGLang's scheduler of one replica."""

    def __init__(self, kind: EngineKind, partner: Partner) -> None:
        super().__init__(kind)
        self._partner = partner
        self._held: Any = None
        self.serving = True
        self.completed: list[tuple[float, int]] = []
        """Time and tokens of each step with requests."""

    def restart(self) -> None:
        """Let the arm decide anew, together with the partner."""
        super().restart()
        recorder: Any = self.recorder
        recorder.charge = _SharedCharge(recorder.charge, self._partner)
        if self._attached is not None:
            driver = self._attached.driver
            driver._ranks, driver._replicas = self._partner, True

    def step(self) -> list[Emitted]:
        """Take a turn of SGLang's plain loop, beside the partner's."""
        batch, self._held = self._held or next_batch(self.scheduler), None
        prompts = bool(batch) and batch.forward_mode.is_extend()
        others = self._partner.largest(prompts, bool(batch) and not prompts, self.serving)
        any_prompts, any_decodes, self.either_serves = map(bool, others)
        if batch and any_prompts and not prompts:
            batch, self._held = None, batch
        if not any_prompts and not any_decodes:
            self.scheduler.last_batch = batch
            return []
        emitted: list[Emitted] = []
        if batch:
            self._launch(batch)
            emitted = self._process()
        else:
            if not any_prompts and self._attached is not None:
                self._attached.driver.before_run(_Idle())
            charge: Any = self.recorder.charge
            self.recorder.clock.advance(charge.seconds(None))
        if self._held is None:
            self.scheduler.last_batch = batch
        return emitted

    def _process(self) -> list[Emitted]:
        emitted = super()._process()
        self.completed.append((self.recorder.clock(), sum(each.tokens for each in emitted)))
        return emitted

    def drain(self) -> None:
        """Step along until the partner has answered its requests, too."""
        self.serving, self.either_serves = False, True
        while self.either_serves:
            self.step()
        self.serving = True


def _answer(replica: Replica, cell: Cell, number: int, arm: Arm, times: int) -> Iterator[float]:
    """Answer a replica's load so many times; its tokens per second until the last was sent."""
    replica.use(arm, device(cell.device))
    traffic = Traffic(pieces=cell.pieces[number], records=_LLAMA, longest=384)
    made = jobs(traffic, "eagle", KMAX, SEED + number)
    recorder = replica.recorder
    for _ in range(times):
        began, replica.completed = recorder.clock(), []
        sent = serve(replica, traffic, made).sent
        recorder.pop_steps()
        steps = replica.completed[:sent]
        yield sum(tokens for _, tokens in steps) / (steps[-1][0] - began)


def _serve_all(number: int, connection: Connection, answers: Connection) -> None:
    replica = Replica(EngineKind(kmax=KMAX, engine=SGLANG), Partner(connection))
    for cell in CELLS:
        found = {
            f"K = {k}": next(_answer(replica, cell, number, Arm(f"k{k}", "", k=k), 1))
            for k in STATIC
        }
        adaptive = Arm("goodput", "", policy="goodput", seed=SEED + number)
        found |= dict(
            zip(("cold", "warm"), _answer(replica, cell, number, adaptive, 2), strict=True)
        )
        answers.send((cell.name, found))
    os._exit(0)  # nothing of a scripted engine wants an orderly end


def main() -> None:
    """Answer all cells with both replicas, and print a table."""
    begin_anew("benchmarks.attention_dp", environment(SGLANG))
    context = multiprocessing.get_context("spawn")
    ends, pipes = context.Pipe(), [context.Pipe(duplex=False) for _ in range(2)]
    for number in range(2):
        context.Process(target=_serve_all, args=(number, ends[number], pipes[number][1])).start()
    print("| requests | device | best fixed K | cold over it | warm over it | warm over K = 0 |")
    print("| --- | --- | --- | --- | --- | --- |")
    warm = []
    for cell in CELLS:
        both = [pipe.recv()[1] for pipe, _ in pipes]
        rate = {arm: sum(found[arm] for found in both) for arm in both[0]}
        best = max((f"K = {k}" for k in STATIC), key=rate.__getitem__)
        warm.append(math.log(rate["warm"] / rate[best]))
        print(
            f"| {cell.name} | {cell.device} | {best} | {rate['cold'] / rate[best]:.3f} | "
            f"{rate['warm'] / rate[best]:.3f} | {rate['warm'] / rate['K = 0']:.3f} |",
            flush=True,
        )
    print(f"warm: mean {math.exp(sum(warm) / len(warm)):.3f}, worst {math.exp(min(warm)):.3f}")


if __name__ == "__main__":
    main()
