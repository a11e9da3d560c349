"""Measurements of a run, collected step by step into a `Result`."""

from __future__ import annotations

import time
from array import array
from collections import Counter

import numpy as np

from adaptive_spec.sim.engine.prompt_queue import Running
from adaptive_spec.sim.result import Percentiles, Result
from adaptive_spec.step import FloatArray, Mode


class Limits:
    """TTFT and TPOT a request must keep to count as good, seconds; None: no limit."""

    def __init__(self, ttft: float | None = None, tpot: float | None = None) -> None:
        self.ttft, self.tpot = ttft, tpot

    @property
    def given(self) -> bool:
        """At least one is set."""
        return self.ttft is not None or self.tpot is not None


class Measurements:
    """Sums and samples of one run.

    Memory grows with the number of requests (16 bytes each) and decisions (8 bytes).

    Args:
        limits: of TTFT and TPOT.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._off: bool | None = None
        self.reset(0.0)

    def reset(self, now: float) -> None:
        """Forget what was measured: the warm-up has ended."""
        self._began = now
        self._wall = time.perf_counter()
        self.steps = self.tokens = self.requests = 0
        self.rejected = self.preemptions = self._good = 0
        self._switches = self._context = self._most = self._accepted = 0
        self._modes: Counter[Mode] = Counter()
        self._k_counts: Counter[int] = Counter()
        self.kv_peak = 0.0
        self._decisions = array("d")
        self._ttft = array("d")
        self._tpot = array("d")

    def decode(
        self,
        mode: Mode,
        by_k: list[int],
        accepted: int,
        context: int,
        decision: float,
    ) -> None:
        """A step in which requests decoded, by K, and the seconds that its decision took."""
        batch_size = sum(by_k)
        self._context += context
        self._most = max(self._most, batch_size)
        self._accepted += accepted
        self._modes[mode] += 1
        self._decisions.append(decision)
        for k, count in enumerate(by_k):
            if count:
                self._k_counts[k] += count
        off = mode is Mode.OFF_WARM or mode is Mode.OFF_COLD
        self._switches += self._off is not None and off is not self._off
        self._off = off

    def step(self, emitted: int) -> None:
        """Record a step that has ended, and its emitted tokens."""
        self.steps += 1
        self.tokens += emitted

    def kv_in_use(self, fraction: float) -> None:
        """Fraction of the KV pool that a step held."""
        self.kv_peak = max(self.kv_peak, fraction)

    def first_token(self, request: Running) -> None:
        """A request got its first token."""
        self._ttft.append(request.first_token - request.request.arrival)

    def ended(self, request: Running, now: float) -> None:
        """A request emitted its last token."""
        self.requests += 1
        ttft = request.first_token - request.request.arrival
        tokens = request.request.output_tokens - 1
        tpot = (now - request.first_token) / tokens if tokens else 0.0
        if tokens:
            self._tpot.append(tpot)
        limits = self._limits
        good_ttft = limits.ttft is None or ttft <= limits.ttft
        good_tpot = limits.tpot is None or tpot <= limits.tpot
        self._good += good_ttft and good_tpot

    @property
    def tpot_seconds(self) -> FloatArray:
        """[requests] mean time per output token after the first, of requests that ended."""
        return np.array(self._tpot)

    def result(self, policy: str, now: float, fail_opens: int) -> Result:
        """Return everything measured since the last reset."""
        seconds = now - self._began
        decoded = sum(self._k_counts.values())
        request_steps = max(decoded, 1)
        decode_steps = max(sum(self._modes.values()), 1)
        verified = sum(k * count for k, count in self._k_counts.items())
        return Result(
            policy=policy,
            throughput_tok_s=self.tokens / seconds if seconds > 0 else 0.0,
            ttft_ms=_percentiles(self._ttft, 1e3),
            tpot_ms=_percentiles(self._tpot, 1e3),
            goodput_req_s=self._good / seconds if self._limits.given and seconds > 0 else None,
            mean_k=verified / request_steps,
            accepted_per_step=self._accepted / request_steps,
            mode_fraction={
                mode.value: count / decode_steps for mode, count in sorted(self._modes.items())
            },
            decision_us=_percentiles(self._decisions, 1e6),
            steps=self.steps,
            tokens=self.tokens,
            seconds=seconds,
            requests=self.requests,
            rejected=self.rejected,
            preemptions=self.preemptions,
            mean_batch=decoded / decode_steps,
            most_batch=self._most,
            mean_context=self._context / request_steps,
            kv_peak=self.kv_peak,
            k_fraction={str(k): n / request_steps for k, n in sorted(self._k_counts.items())},
            fail_opens=fail_opens,
            switches=self._switches,
            simulation_seconds=time.perf_counter() - self._wall,
        )


def _percentiles(values: array[float], scale: float) -> Percentiles:
    if not values:
        return Percentiles()
    scaled = np.frombuffer(values, dtype=np.float64) * scale
    p50, p90, p99 = np.percentile(scaled, (50, 90, 99)).tolist()
    return Percentiles(p50, p90, p99, float(scaled.mean()))
