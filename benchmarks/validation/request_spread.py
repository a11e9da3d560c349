"""By how much the requests of the audit on the H100 differ in how well they are drafted for.

    python -m benchmarks.validation.request_spread

The audit's file of single requests (results/eagle3_multik_llama8b.json, commit bcac258) has the
accepted length of each of 30 requests by text and K. `SINGLE` quotes mean and standard deviation
over the requests at two K. Part of the deviation is luck, since a request has some 70 steps. What
is left is the deviation of the hazard's logit that V9 states for each text: requests of which
nothing else is known have this spread of accepted lengths. No throughput enters.
"""

from __future__ import annotations

from statistics import fmean, stdev

import numpy as np

from adaptive_spec.sim.acceptance.hazard import HazardModel, generate
from benchmarks.validation.arms import level_of

SINGLE: dict[str, dict[int, tuple[float, float]]] = {
    "humaneval": {2: (1.8495, 0.2615), 5: (2.1281, 0.4357)},
    "gsm8k": {2: (1.8447, 0.1822), 5: (2.1601, 0.3341)},
    "mt_bench": {2: (1.5296, 0.2385), 5: (1.6765, 0.4028)},
}
"""By text and K: mean and standard deviation of the accepted length over 30 requests."""
OUTPUT_TOKENS = 128

_REQUESTS = 4000
_HALVINGS = 12


def deviation_of(mean: float, spread: float, k: int) -> float:
    """Deviation of the logit at which accepted lengths of requests spread like this."""
    low, high = 0.0, 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _spread(mean, k, middle) < spread else (low, middle)
    return (low + high) / 2.0


def _spread(mean: float, k: int, deviation: float) -> float:
    level = level_of(mean, k, deviation, of_requests=True)
    model = HazardModel(name="single", position_logits=(level,), request_deviation=deviation)
    lengths = np.full(_REQUESTS, OUTPUT_TOKENS)
    data = generate(model, depth=k, seed=1, output_tokens=lengths)
    emitted = data.accepted.reshape(_REQUESTS, OUTPUT_TOKENS) + 1
    return stdev(_accepted_length(row.tolist()) for row in emitted)


def _accepted_length(emitted: list[int]) -> float:
    """Tokens per step of a request, where a step at each position emits so many."""
    at = steps = 0
    while at < len(emitted):
        at += emitted[at]
        steps += 1
    return at / steps


def main() -> None:
    for text, found in SINGLE.items():
        by_k = {k: deviation_of(mean, spread, k) for k, (mean, spread) in found.items()}
        shown = ", ".join(f"K = {k}: {value:.2f}" for k, value in by_k.items())
        print(f"{text}: {shown}; mean {fmean(by_k.values()):.2f}")


if __name__ == "__main__":
    main()
