"""A closed loop of clients, and what is counted while it runs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from benchmarks.bench_pair.prompts import load_prompts

MIXED = "mixed"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the clients ask for.

    Attributes:
        clients: requests under way; each client sends its next request when its last is answered.
        temperature: of sampling.
        seed: draws the order of the prompts and, with temperature, the samples.
        seconds: measured time; the cell ends with the answer that completes a cycle of kinds.
        settle_seconds: time before that, not counted.
        output_tokens: length of an answer.
        kind: `mixed`, or the only kind of prompt.
    """

    clients: int
    temperature: float
    seed: int
    seconds: float
    settle_seconds: float = 1.0
    output_tokens: int = 96
    kind: str = MIXED

    def prompts(self) -> Iterator[tuple[str, str]]:
        """Kind and text of endless prompts, all kinds in turn where they are mixed."""
        texts = load_prompts()
        if self.kind != MIXED:
            texts = {self.kind: texts[self.kind]}
        chance = random.Random(self.seed)
        shuffled = {kind: chance.sample(some, len(some)) for kind, some in sorted(texts.items())}
        for place in itertools.count():
            for kind in chance.sample(sorted(shuffled), len(shuffled)):
                some = shuffled[kind]
                yield kind, some[place % len(some)]

    def first_length(self, place: int) -> int:
        """Output tokens of a client's first request, staggered so that answers don't coincide."""
        return max(self.output_tokens * (place + 1) // self.clients, 1)


@dataclass
class Steps:
    """What each step of the engine said of itself; one entry per step.

    Attributes:
        at: seconds, when its results arrived.
        running: requests.
        drafts: requests that verified at least one draft.
        draft_tokens: drafts verified.
        accepted: drafts accepted.
        graph: the CUDA graph mode that ran, without its class; empty if unknown.
    """

    at: list[float] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    draft_tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    graph: list[str] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all steps."""
        for column in vars(self).values():
            column.clear()

    def summary(self, since: float) -> dict[str, Any]:
        """Medians and counts of the steps after a moment."""
        if len(self.at) < 2:
            return {"steps": len(self.at)}
        at = np.asarray(self.at)
        seconds = np.diff(at)
        kept = at[1:] >= since
        running = np.asarray(self.running)[1:][kept]
        tokens = np.asarray(self.draft_tokens)[1:][kept]
        seconds = seconds[kept]
        if not len(seconds):
            return {"steps": 0}
        depth = np.where(running > 0, tokens / np.maximum(running, 1), 0.0)
        by_k = {}
        for k in np.unique(np.round(depth)):
            chosen = seconds[np.abs(depth - k) < 0.02]
            if len(chosen) >= 5:
                by_k[int(k)] = [len(chosen), round(1e3 * float(np.median(chosen)), 4)]
        graphs = [mode for mode, keep in zip(self.graph[1:], kept, strict=True) if keep]
        return {
            "steps": len(seconds),
            "step_ms": [round(1e3 * float(q), 4) for q in np.percentile(seconds, (10, 50, 90))],
            "step_ms_by_k": by_k,
            "mean_k": round(float(depth.mean()), 4),
            "mean_running": round(float(running.mean()), 2),
            "drafted": int(tokens.sum()),
            "accepted": int(np.asarray(self.accepted)[1:][kept].sum()),
            "graphs": {mode: graphs.count(mode) for mode in sorted(set(graphs))},
        }


class Tally:
    """Tokens and requests counted from the engine's answers."""

    def __init__(self) -> None:
        self.tokens = 0
        self.finished = 0
        self.by_kind: dict[str, list[int]] = {}

    def count(self, kind: str, emitted: int, first: bool, finished: bool) -> None:
        """One request's part of a step; the first is the prompt's and verifies nothing."""
        self.tokens += emitted
        self.finished += finished
        if not first:
            row = self.by_kind.setdefault(kind, [0, 0])
            row[0] += 1
            row[1] += emitted - 1
