"""Durations of decode steps of a given batch, K, depth and context."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import msgspec
import numpy as np

from benchmarks.bench_pair.prompts import load_prompts

from .engine import Engine
from .steered import NAME as STEERED

UNCOUNTED = 4
"""Steps after a change of K that are not counted: those under way, and the first drafts."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts that the requests of a batch verify and make; fields as in `SteeredOptions`."""

    k: int
    depth: int | None = None
    ragged: bool = False


def time_settings(
    engine: Engine, batch: int, context: int, settings: list[Setting], steps: int, seed: int
) -> list[dict[str, Any]]:
    """Time each setting with the same requests, in an order drawn by `seed`.

    Args:
        engine: with the steered policy, or without speculation if `settings` is empty.
        batch: requests.
        context: tokens of their prompts.
        settings: what is timed; none for an engine without speculation.
        steps: counted steps of each.
        seed: of the order.

    Returns:
        A row for each setting: its fields, mean context while it ran, step times in ms.
    """
    chance, recorded = random.Random(seed), engine.recorder.steps
    emitted = _begin(engine, batch, context)
    rows = []
    order: list[Setting | None] = [*chance.sample(settings, len(settings))]
    for setting in order or [None]:
        if setting is not None:
            engine.control({"policy": STEERED, "options": msgspec.structs.asdict(setting)})
        emitted += _run(engine, UNCOUNTED)
        recorded.clear()
        before = emitted
        emitted += _run(engine, steps)
        seconds = np.diff([step.at for step in recorded])
        low, middle, high = (1e3 * np.percentile(seconds, (10, 50, 90))).round(4).tolist()
        rows.append(
            {
                "batch": batch,
                "prompt": context,
                "context": round(context + (before + emitted) / 2 / batch),
                **(msgspec.structs.asdict(setting) if setting is not None else {"none": True}),
                "ms": middle,
                "ms_p10": low,
                "ms_p90": high,
                "drafted": sum(step.work.tokens - step.work.requests for step in recorded),
                "graphs": Counter(step.graph for step in recorded),
            }
        )
    engine.abandon()
    return rows


def _begin(engine: Engine, batch: int, context: int) -> int:
    """Send a batch of prompts and run until all decode; tokens emitted meanwhile."""
    texts = itertools.cycle(text for some in load_prompts().values() for text in some)
    for _ in range(batch):
        engine.send("shape", _prompt(engine, texts, context), max_tokens=4096, temperature=0.8)
    emitted = 0
    spoken: set[str] = set()
    while len(spoken) < batch:
        for output in engine.outputs():
            spoken.add(output.request_id)
            emitted += len(output.outputs[0].token_ids)
    return emitted


def _run(engine: Engine, steps: int) -> int:
    """Run until so many more steps have ended; tokens emitted meanwhile.

    Raises RuntimeError if the requests end before.
    """
    recorded, emitted = engine.recorder.steps, 0
    until = len(recorded) + steps
    while len(recorded) < until:
        if not engine.live:
            raise RuntimeError("the requests are as long as the model allows: time fewer steps")
        emitted += sum(len(output.outputs[0].token_ids) for output in engine.outputs())
    return emitted


def _prompt(engine: Engine, texts: Any, tokens: int) -> list[int]:
    found: list[int] = []
    while len(found) < tokens:
        found += engine.tokens_of([next(texts)])[0]
    return found[:tokens]
