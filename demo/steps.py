"""What the step trace of our server says: which K, why, and how well it was predicted."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from adaptive_spec.operation.trace import read_trace

from .arms import KMAX
from .traffic import kind_of

Step = Mapping[str, Any]


def read_steps(directory: Path) -> list[Step]:
    """All steps in order of time."""
    return sorted(read_trace(directory), key=lambda step: step["now"])


def between(steps: Sequence[Step], began: float, ended: float) -> Sequence[Step]:
    """The steps that ended in this time; `steps` is in order."""
    times = [step["now"] for step in steps]
    return steps[bisect.bisect_left(times, began) : bisect.bisect_right(times, ended)]


def summary(steps: Iterable[Step]) -> dict[str, Any]:
    """K, acceptance, depth, reasons and predictions of some steps, JSON-compatible."""
    chosen = [step for step in steps if step["seconds"]]
    drafts = Counter(k for step in chosen for k in step["k"])
    seen = sum(drafts.values())
    verified = sum(k * count for k, count in drafts.items())
    seconds = sum(step["seconds"] for step in chosen)
    return {
        "steps": len(chosen),
        "seconds": round(seconds, 3),
        "mean_batch": _ratio(sum(step["batch_size"] for step in chosen), len(chosen)),
        "mean_k": _ratio(verified, seen),
        "shares_of_k": [_ratio(drafts[k], seen) for k in range(KMAX + 1)],
        "acceptance": _ratio(sum(sum(step["accepted"]) for step in chosen), verified),
        "mean_depth": _ratio(sum(step["depth"] for step in chosen), len(chosen)),
        "modes": _shares_of_time(chosen, lambda step: step["mode"], seconds),
        "reasons": _shares_of_time(chosen, lambda step: grouped(step["reason"]), seconds),
        "learning_share": _ratio(
            sum(step["seconds"] for step in chosen if step.get("measures")), seconds
        ),
        **_predictions(chosen),
    }


def by_kind(steps: Iterable[Step]) -> dict[str, dict[str, float]]:
    """Mean K, acceptance and tokens per step of each kind of prompt."""
    totals: dict[str, list[int]] = {}
    for step in steps:
        columns = (step["ids"], step["k"], step["accepted"])
        for request_id, k, accepted in zip(*columns, strict=True):
            row = totals.setdefault(kind_of(request_id) or "other", [0, 0, 0])
            row[0] += 1
            row[1] += k
            row[2] += accepted
    return {
        kind: {
            "request_steps": count,
            "mean_k": _ratio(verified, count),
            "acceptance": _ratio(accepted, verified),
            "tokens_per_step": _ratio(accepted + count, count),
        }
        for kind, (count, verified, accepted) in sorted(totals.items())
    }


def grouped(reason: str) -> str:
    """A reason without its numbers, so that alike ones are counted together."""
    return " ".join("K" if word.isdigit() else word for word in reason.split())


def _predictions(steps: Sequence[Step]) -> dict[str, Any]:
    """Predicted against measured, for steps that carried a prediction and no prompt."""
    chosen = [s for s in steps if s["predicted_seconds"] and not s["prefill_tokens"]]
    if not chosen:
        return {"predicted_steps": 0}
    errors = [s["predicted_seconds"] / s["seconds"] - 1.0 for s in chosen]
    emitted = sum(sum(s["emitted"]) for s in chosen)
    return {
        "predicted_steps": len(chosen),
        "seconds_bias": round(median(errors), 4),
        "seconds_error": round(median(map(abs, errors)), 4),
        "tokens_bias": _ratio(sum(s["predicted_tokens"] for s in chosen) - emitted, emitted),
    }


def _shares_of_time(steps: Sequence[Step], key: Any, seconds: float) -> dict[str, float]:
    times: Counter[str] = Counter()
    for step in steps:
        times[key(step)] += step["seconds"]
    return {name: _ratio(time, seconds) for name, time in times.most_common()}


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0
