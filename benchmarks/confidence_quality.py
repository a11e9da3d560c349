r"""How well history predicts hazards, with the drafter's confidence and without.

    python benchmarks/confidence_quality.py --results benchmarks/results
    python benchmarks/confidence_quality.py --acceptance FILE --acceptance record:good_t0.8:json

Recorded steps run as in a server with `--concurrency` requests at a time, in an order drawn by the
seed. At every step each model first says the hazard of every draft, then learns what was accepted,
as it does online. Counted are the drafts whose predecessors were all accepted: of those the outcome
is known.

    AUC    how often an accepted draft had the higher prediction; .5 is chance
    ECE    |predicted - accepted| over 20 bins, weighed by their number of drafts (Guo et al. 2017)
    loss   -log of the probability given to what happened, the mean

`history` predicts before the drafts are made, `both` with their confidence, too. `raw` is the
drafter's maximum probability itself, as if it were the probability of acceptance.
Needs no vLLM. Confidences come from the records, not from a model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.policies.acceptance import Acceptance
from adaptive_spec.policies.hazard_quality import BINS, auc, calibration_error, tally
from adaptive_spec.sim.acceptance.data import AcceptanceData, steps_of
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.two_sources import REAL_TEXT
from adaptive_spec.step import FloatArray, IntArray
from benchmarks.judge.figures import markdown

HISTORY, BOTH, RAW = "history", "both", "raw"
WAYS = (HISTORY, BOTH, RAW)
DEFAULT = tuple(f"record:{name}" for name in REAL_TEXT)
SLOTS = 8
WARM_UP_STEPS = 20
"""Of the whole batch: with less, all models say their prior."""


class Learner:
    """One acceptance model, and what it may use."""

    def __init__(self, way: str, depth: int) -> None:
        self._model = Acceptance(depth)
        self._uses_signal = way != HISTORY

    def predict_and_learn(self, step: Step) -> FloatArray:
        """Hazards [Kmax, B] before this step's outcome is known; then it is learned."""
        model = self._model
        signal = model.signal(step.confidence) if self._uses_signal else None
        predicted = model.predict(step.slots, signal)[0]
        model.learn(step.slots, step.verified, step.accepted, signal)
        return predicted

    def forget(self, slots: IntArray) -> None:
        """These requests have ended."""
        self._model.forget(slots)


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a batch: [B] each, confidence [B, Kmax]; `ended` are slots."""

    slots: IntArray
    temperature: FloatArray
    verified: IntArray
    accepted: IntArray
    confidence: FloatArray
    record: IntArray
    ended: IntArray


def batches(data: AcceptanceData, concurrency: int, seed: int) -> Iterator[Step]:
    """Steps with K = Kmax of all records, so many of them at a time."""
    assert data.confidence is not None
    starts, accepted = steps_of(data, data.depth)
    record = np.searchsorted(data.offsets, starts, side="right") - 1
    first = np.searchsorted(record, np.arange(data.records + 1))
    queue = deque(np.random.default_rng(seed).permutation(data.records).tolist())
    running = [queue.popleft() for _ in range(min(concurrency, len(queue)))]
    at = [int(first[each]) for each in running]
    slots = list(range(len(running)))
    while running:
        rows = np.array(at)
        ending = [step + 1 == first[each + 1] for step, each in zip(at, running, strict=True)]
        yield Step(
            slots=np.array(slots),
            temperature=data.temperatures[running],
            verified=np.full(len(rows), data.depth, dtype=np.int64),
            accepted=accepted[rows],
            confidence=data.confidence[starts[rows]].astype(np.float64),
            record=np.array(running),
            ended=np.array([s for s, end in zip(slots, ending, strict=True) if end], dtype=int),
        )
        at = [step + 1 for step in at]
        for place in reversed([place for place, end in enumerate(ending) if end]):
            if queue:
                running[place] = queue.popleft()
                at[place] = int(first[running[place]])
            else:
                del running[place], at[place], slots[place]


class Quality:
    """Predictions of one way against outcomes, by draft position."""

    def __init__(self, depth: int) -> None:
        self._counts = np.zeros((depth, BINS, 3))
        self._loss = np.zeros(depth)

    def add(self, predicted: FloatArray, verified: IntArray, accepted: IntArray) -> None:
        """Count a step: predictions [Kmax, B], nan where not to be counted."""
        tally(predicted, verified, accepted, self._counts)
        position = np.arange(len(predicted))[:, None]
        held = np.clip(predicted, 1e-4, 1.0 - 1e-4)
        loss = -np.log(np.where(position < accepted, held, 1.0 - held))
        self._loss += np.nansum(np.where(position <= accepted, loss, np.nan), axis=1)

    def figures(self, position: int | None = None) -> dict[str, Any]:
        """Return drafts, share accepted, AUC, ECE and loss, of all positions or of one."""
        counts, loss = self._counts.sum(axis=0), self._loss.sum()
        if position is not None:
            counts, loss = self._counts[position], self._loss[position]
        drafts, accepted = int(counts[:, :2].sum()), float(counts[:, 1].sum())
        found = {"auc": auc(counts), "ece": calibration_error(counts)}
        shares = {"accepted": accepted, "loss": float(loss)}
        found |= {name: value / drafts if drafts else None for name, value in shares.items()}
        rounded = {key: None if v is None else round(v, 4) for key, v in found.items()}
        return {"drafts": drafts, **rounded}


def report(name: str, data: AcceptanceData, concurrency: int, seed: int) -> dict[str, Any]:
    """Quality of each way over all drafts, by position, by kind of prompt and by temperature."""
    learners = {way: Learner(way, data.depth) for way in WAYS if way != RAW}
    groups: dict[str, dict[str, Quality]] = {}
    labels = np.array(data.labels)
    for number, step in enumerate(batches(data, concurrency, seed)):
        said = {way: learner.predict_and_learn(step) for way, learner in learners.items()}
        said[RAW] = step.confidence.T
        for learner in learners.values():
            learner.forget(step.ended)
        if number < WARM_UP_STEPS:
            continue
        of_each = labels[step.record], [f"T = {each:g}" for each in step.temperature]
        for group in ["all", *np.unique(np.concatenate(of_each)).tolist()]:
            rows = np.flatnonzero((group == "all") | (np.array(of_each) == group).any(axis=0))
            qualities = groups.setdefault(group, {way: Quality(data.depth) for way in WAYS})
            for way, quality in qualities.items():
                shown = np.where(np.isnan(said[RAW]), np.nan, said[way])[:, rows]
                quality.add(np.ascontiguousarray(shown), step.verified[rows], step.accepted[rows])
    every = groups["all"]
    found = {group: {way: q.figures() for way, q in some.items()} for group, some in groups.items()}
    found |= {
        f"position {at + 1}": {way: quality.figures(at) for way, quality in every.items()}
        for at in range(data.depth)
    }
    return {"acceptance": name, "source": data.source, "rows": found}


def text(found: dict[str, Any]) -> str:
    """A table of one set of records."""
    heads = ["", "drafts", "accepted", *(f"{way}: AUC; ECE; loss" for way in WAYS)]
    lines = []
    for name, row in found["rows"].items():
        cells = [
            "; ".join(_number(row[way][each]) for each in ("auc", "ece", "loss")) for way in WAYS
        ]
        known = row[HISTORY]
        lines.append([name, str(known["drafts"]), _number(known["accepted"]), *cells])
    return f"{found['acceptance']}\n{markdown(heads, lines)}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, run, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--acceptance",
        action="append",
        help="as `adaptive-spec replay` takes it, with confidence; A,B mixes two. Repeat for more. "
        "Default: a real model's own answers",
    )
    parser.add_argument("--kmax", type=int, default=6)
    parser.add_argument("--concurrency", type=int, default=SLOTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, help="folder for confidence_quality.json")
    given = parser.parse_args(arguments)
    sets = [each.split(",") for each in given.acceptance or DEFAULT]
    found = []
    for names in sets:
        try:
            data = load_acceptance(names, drafter_list="eagle", seed=given.seed, kmax=given.kmax)
        except AdaptiveSpecError as error:
            parser.exit(1, f"error: {error}\n")
        if data.confidence is None:
            parser.exit(1, f"error: {', '.join(names)}: no confidence was recorded\n")
        found.append(report("+".join(names), data, given.concurrency, given.seed))
        print(text(found[-1]), end="\n\n", flush=True)
    if given.results is not None:
        command = " ".join(["python", "benchmarks/confidence_quality.py", *sys.argv[1:]])
        about = {"command": command, "concurrency": given.concurrency, "seed": given.seed}
        given.results.mkdir(parents=True, exist_ok=True)
        body = json.dumps({**about, "sets": found}, indent=1)
        (given.results / "confidence_quality.json").write_text(f"{body}\n")


if __name__ == "__main__":
    main()
