"""Result of a run, and what several seeds say together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np


class Percentiles(msgspec.Struct, frozen=True):
    """Percentiles and mean of a set of values; None for an empty set."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    mean: float | None = None


class Regret(msgspec.Struct, frozen=True, kw_only=True):
    """A result held against what is known only afterwards.

    For a closed loop the score is throughput; otherwise, where arrivals fix the throughput, it
    is the inverse of the mean TPOT.

    Attributes:
        best_static_k: the fixed K with the best score on this load; 0 is true no speculation.
        of_best_static: score over that of the best fixed K.
        of_no_speculation: score over that of true no speculation.
        of_foresight: score over that of K_i and D chosen knowing every acceptance beforehand;
            None for token trees and with one K for the batch.
        model_error: half-width, relative, of the interval that `of_no_speculation` has for what
            the machine's profile is known to be off by (`sim.hardware.validity`).
    """

    best_static_k: int
    of_best_static: float
    of_no_speculation: float
    of_foresight: float | None
    model_error: float | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one load. A seed fixes all but `decision_us` and `simulation_seconds`.

    Attributes:
        policy: as it was asked for.
        seed: of load, records and policy.
        throughput_tok_s: emitted tokens over simulated seconds.
        ttft_ms: time to first token, of requests that got one.
        tpot_ms: mean time per output token after the first, of requests that ended.
        goodput_req_s: requests per second that ended within the TTFT and TPOT limits; None
            without limits.
        mean_k: verified drafts per decoding request and step.
        accepted_per_step: accepted drafts per decoding request and step.
        mode_fraction: fraction of decode steps by mode.
        decision_us: time of plan and observe, on the simulating machine.
        steps: engine steps, those of prompts only included.
        tokens: tokens emitted.
        seconds: simulated.
        requests: requests that ended.
        rejected: requests that could never fit into the KV pool.
        preemptions: times a request lost its KV blocks.
        mean_batch: decoding requests per decode step.
        most_batch: decoding requests of the fullest step.
        mean_context: tokens of context per decoding request.
        kv_peak: largest fraction of the KV pool in use.
        k_fraction: fraction of decoding requests and steps by verified K.
        fail_opens: decisions that could not be used.
        simulation_seconds: what it took to simulate.
        switches: times speculation was switched off, or on again, from one decode step to the
            next.
        regret: against the oracles, if they were run.
    """

    policy: str
    throughput_tok_s: float
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    goodput_req_s: float | None
    mean_k: float
    accepted_per_step: float
    mode_fraction: dict[str, float]
    decision_us: Percentiles
    steps: int
    tokens: int
    seconds: float
    requests: int
    rejected: int
    preemptions: int
    mean_batch: float
    kv_peak: float
    k_fraction: dict[str, float]
    fail_opens: int
    simulation_seconds: float
    seed: int = 0
    most_batch: int = 0
    mean_context: float = 0.0
    switches: int = 0
    regret: Regret | None = None

    def score(self, *, closed: bool) -> float:
        """Score of the oracles: throughput of a closed loop, else the inverse of mean TPOT."""
        if closed:
            return self.throughput_tok_s
        mean = self.tpot_ms.mean
        return 1.0 / mean if mean else math.nan


_ONE_SIDED_95 = {2: 6.31, 3: 2.92, 4: 2.35, 5: 2.13, 6: 2.02}
"""Student's t by number of seeds; 1.9 beyond."""


def mean_and_spread(
    runs: Sequence[Result], metric: Callable[[Result], float | None]
) -> tuple[float, float] | None:
    """Mean over the seeds and half their range; None where a run lacks the figure."""
    values = [value for run in runs if (value := metric(run)) is not None]
    if len(values) < len(runs) or not values:
        return None
    return sum(values) / len(values), (max(values) - min(values)) / 2.0


def best_static_ks(static: Sequence[Sequence[Result]], *, closed: bool) -> list[int]:
    """The fixed K with the best mean score, and those that the seeds do not tell apart from it.

    Seeds share load and luck between K, so the ratio of two K is compared seed by seed (a one-sided
    t-test, 5 %). A single seed tells nothing apart and gives its best K alone.

    Args:
        static: for each seed, the results of K = 0, 1, ..., Kmax.
        closed: throughput is the score, otherwise TPOT.
    """
    scores = np.array([[run.score(closed=closed) for run in runs] for runs in static])
    relative = scores / scores.mean(axis=1, keepdims=True)
    best = int(np.argmax(relative.mean(axis=0)))
    seeds = len(static)
    if seeds == 1:
        return [best]
    behind = relative[:, [best]] / relative - 1.0
    margin = behind.std(axis=0, ddof=1) / np.sqrt(seeds) * _ONE_SIDED_95.get(seeds, 1.9)
    return [k for k in range(scores.shape[1]) if k == best or behind[:, k].mean() <= margin[k]]
