"""What streams of text that no drafter follows take from the requests beside them.

    python -m benchmarks.judge.garbage [--device l40s-8b] [--victims 96] [--streams 40] [--tokens 5]

on a real vLLM scheduler, as the judge's cells. Victims send requests of 300 to 900 tokens, one
after the other, whose drafts are mostly right. From a third of the steps on, streams of short
requests whose drafts are wrong join them, without a label and with nothing to tell them by. Printed
is the victims' speed in the last third: over that of the best fixed K under the same attack, for
K per request and for one K per batch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .arms import parse_arm
from .device import device
from .engines import EngineKind
from .records import lines
from .script import Lines
from .scripted_vllm import ENVIRONMENT, ScriptedVllm

KMAX, SEED = 6, 1
STATIC = ("none", "k1", "k2", "k3", "k5")
LEARNING = ("goodput", "one-k")
GOOD, GARBAGE = "hazard:0.8", "hazard:0.02"


class Attack:
    """Victims, and streams of garbage that join them.

    Args:
        engine: idle.
        victims: requests at a time.
        streams: of garbage at a time, once it has begun.
        tokens: of each answer to garbage.
    """

    def __init__(self, engine: ScriptedVllm, victims: int, streams: int, tokens: int) -> None:
        self._engine, self._tokens = engine, tokens
        self._wanted = {"victim": victims, "garbage": streams}
        self._texts: dict[str, Lines] = {
            "victim": lines(GOOD, "eagle", KMAX),
            "garbage": lines(GARBAGE, "eagle", KMAX),
        }
        self._random = np.random.default_rng(SEED)
        self._live: set[str] = set()
        self._sent = 0

    def speed(self, steps: int) -> float:
        """Tokens per second of one victim in the last third of so many steps."""
        clock, tokens, since = self._engine.recorder.clock, 0, 0.0
        for step in range(steps):
            if step == 2 * steps // 3:
                tokens, since = 0, clock()
            self._send("victim")
            if step >= steps // 3:
                self._send("garbage")
            for name, emitted, finished in self._engine.step():
                tokens += emitted if name.startswith("victim") else 0
                self._live -= {name} if finished else set()
        self._engine.recorder.pop_steps()
        return tokens / (clock() - since) / self._wanted["victim"]

    def _send(self, kind: str) -> None:
        text = self._texts[kind]
        while sum(name.startswith(kind) for name in self._live) < self._wanted[kind]:
            self._sent += 1
            start = int(text.data.offsets[self._random.integers(0, text.data.records)])
            answer = int(self._random.integers(300, 900)) if kind == "victim" else self._tokens
            self._engine.submit(f"{kind}{self._sent}", 64, answer, text, start)
            self._live.add(f"{kind}{self._sent}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each arm."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="l40s-8b")
    parser.add_argument("--victims", type=int, default=96)
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=5, help="of each answer to garbage")
    parser.add_argument("--steps", type=int, default=1800)
    given = parser.parse_args(arguments)
    os.environ.update(ENVIRONMENT)
    on, speeds = device(given.device), dict[str, float]()
    for name in (*STATIC, *LEARNING):
        engine = ScriptedVllm(EngineKind("eagle", KMAX))
        engine.use(replace(parse_arm(name), seed=SEED), on)
        speeds[name] = Attack(engine, given.victims, given.streams, given.tokens).speed(given.steps)
        over = "" if name in STATIC else f"  {speeds[name] / max(speeds[k] for k in STATIC):.3f}"
        print(f"{name:8} {speeds[name]:7.1f} tokens/s{over}")
        engine.close()


if __name__ == "__main__":
    main()
