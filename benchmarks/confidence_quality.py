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

from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.policies.acceptance import Acceptance
from adaptive_spec.policies.hazard_quality import BINS, auc, calibration_error, tally
from adaptive_spec.sim.acceptance.data import AcceptanceData, steps_of
from adaptive_spec.sim.acceptance.files import load_acceptance
from adaptive_spec.sim.acceptance.two_sources import REAL_TEXT
from adaptive_spec.step import BoolArray, FloatArray, IntArray

HISTORY, BOTH, RAW = "history", "both", "raw"
WAYS = (HISTORY, BOTH, RAW)
DEFAULT = tuple(f"record:{name}" for name in REAL_TEXT)
SLOTS = 8
WARM_UP_STEPS = 20
"""Of the whole batch: with less, all models say their prior."""


@dataclass(frozen=True, eq=False)
class Seen:
    """Drafts of which the outcome is known, in the order in which they were verified. N in all.

    Attributes:
        accepted: [N].
        position: [N] from 0.
        kind: [N] index into `kinds`.
        temperature: [N] of the target.
        kinds: labels.
        predicted: hazards [N], by way of predicting.
    """

    accepted: BoolArray
    position: IntArray
    kind: IntArray
    temperature: FloatArray
    kinds: tuple[str, ...]
    predicted: dict[str, FloatArray]


class Learner:
    """One acceptance model, and what it may use."""

    def __init__(self, way: str, depth: int) -> None:
        self._model = Acceptance(depth)
        self._uses_signal = way != HISTORY

    def predict_and_learn(self, step: Step) -> FloatArray:
        """Hazards [Kmax, B] before this step's outcome is known; then it is learned."""
        model = self._model
        signal = model.signal(step.confidence) if self._uses_signal else None
        predicted = model.hazard(model.logits(step.slots), signal)
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


def predictions(data: AcceptanceData, concurrency: int, seed: int) -> Seen:
    """Predict every draft of known outcome in each of the ways."""
    learners = {way: Learner(way, data.depth) for way in WAYS if way != RAW}
    kinds = tuple(dict.fromkeys(data.labels))
    kind_of = np.array([kinds.index(label) for label in data.labels])
    parts: dict[str, list[Any]] = {name: [] for name in ("a", "p", "k", "t", *WAYS)}
    for number, step in enumerate(batches(data, concurrency, seed)):
        said = {way: learner.predict_and_learn(step) for way, learner in learners.items()}
        said[RAW] = step.confidence.T
        for learner in learners.values():
            learner.forget(step.ended)
        if number < WARM_UP_STEPS:
            continue
        position = np.arange(data.depth)[:, None]
        known = (position <= step.accepted) & ~np.isnan(said[RAW])
        parts["a"].append((position < step.accepted)[known])
        parts["p"].append(np.broadcast_to(position, known.shape)[known])
        parts["k"].append(np.broadcast_to(kind_of[step.record], known.shape)[known])
        parts["t"].append(np.broadcast_to(step.temperature, known.shape)[known])
        for way in WAYS:
            parts[way].append(said[way][known])
    whole = {name: np.concatenate(part) for name, part in parts.items()}
    return Seen(
        accepted=whole["a"],
        position=whole["p"],
        kind=whole["k"],
        temperature=whole["t"],
        kinds=kinds,
        predicted={way: whole[way] for way in WAYS},
    )


def histogram(predicted: FloatArray, accepted: BoolArray) -> FloatArray:
    """Return counts [BINS, 3] of drafts [N], as `policies.hazard_quality` reads them."""
    counts = np.zeros((1, BINS, 3))
    tally(predicted[None], np.ones(len(accepted), dtype=np.int64), accepted.astype(int), counts)
    found: FloatArray = counts[0]
    return found


def quality(seen: Seen, chosen: BoolArray) -> dict[str, Any]:
    """Number of drafts, share accepted, and AUC, ECE and loss of each way, of the drafts chosen."""
    accepted = seen.accepted[chosen]
    row: dict[str, Any] = {"drafts": len(accepted), "accepted": _rounded(accepted.mean())}
    for way, predicted in seen.predicted.items():
        counts = histogram(predicted[chosen], accepted)
        figures = {"auc": auc(counts), "ece": calibration_error(counts)}
        figures["loss"] = log_loss(predicted[chosen], accepted)
        row[way] = {name: _rounded(value) for name, value in figures.items()}
    return row


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)


def log_loss(predicted: FloatArray, accepted: BoolArray) -> float:
    """Mean -log of the probability [N] given to what happened [N], held away from 0 and 1."""
    held = np.clip(predicted, 1e-4, 1.0 - 1e-4)
    return float(-np.log(np.where(accepted, held, 1.0 - held)).mean())


def report(name: str, data: AcceptanceData, seen: Seen) -> dict[str, Any]:
    """Quality over all drafts, by position, by kind of prompt and by temperature."""
    every = np.ones(len(seen.accepted), dtype=np.bool_)
    deepest = int(seen.position.max())
    return {
        "acceptance": name,
        "source": data.source,
        "all": quality(seen, every),
        "position": {
            str(each + 1): quality(seen, seen.position == each) for each in range(deepest + 1)
        },
        "kind": {label: quality(seen, seen.kind == each) for each, label in enumerate(seen.kinds)},
        "temperature": {
            f"{each:g}": quality(seen, seen.temperature == each)
            for each in np.unique(seen.temperature).tolist()
        },
    }


def text(found: dict[str, Any]) -> str:
    """A table of one set of records."""
    ways = [way for way in WAYS if way in found["all"]]
    titles = "".join(f"{way + ' AUC':>16}{'ECE':>6}{'loss':>6}" for way in ways)
    lines = [found["acceptance"], f"{'':12}{'drafts':>8}{'accepted':>9}{titles}"]
    lines.append(_line("all", found["all"]))
    lines += [_line(f"position {name}", row) for name, row in found["position"].items()]
    lines += [_line(name, row) for name, row in found["kind"].items()]
    if len(found["temperature"]) > 1:
        lines += [_line(f"T = {name}", row) for name, row in found["temperature"].items()]
    return "\n".join(lines)


def _line(name: str, row: dict[str, Any]) -> str:
    cells = "".join(
        f"{_number(row[way]['auc']):>16}{_number(row[way]['ece']):>6}{_number(row[way]['loss']):>6}"
        for way in WAYS
        if way in row
    )
    return f"{name:12}{row['drafts']:8}{_number(row['accepted']):>9}{cells}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".replace("0.", ".", 1)


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
        found.append(
            report("+".join(names), data, predictions(data, given.concurrency, given.seed))
        )
        print(text(found[-1]), end="\n\n", flush=True)
    if given.results is not None:
        command = " ".join(["python", "benchmarks/confidence_quality.py", *sys.argv[1:]])
        about = {"command": command, "concurrency": given.concurrency, "seed": given.seed}
        save(given.results, about, found)


def save(folder: Path, about: dict[str, Any], found: list[dict[str, Any]]) -> None:
    """Write the JSON file."""
    folder.mkdir(parents=True, exist_ok=True)
    body = json.dumps({**about, "sets": found}, indent=1)
    (folder / "confidence_quality.json").write_text(f"{body}\n")


if __name__ == "__main__":
    main()
