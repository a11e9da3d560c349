"""Measurements of a run, collected step by step into a `Result`."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from adaptive_spec.sim.engine.prompt_queue import Running
from adaptive_spec.sim.results.result import Percentiles, Result, Timeline
from adaptive_spec.sim.results.segments import Segments
from adaptive_spec.step import FloatArray, Mode

_PIECES = 1024


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

    Memory grows with the number of requests (16 bytes each) and decisions (8 bytes); apart from
    that only with the logarithm of the steps after a change.

    Args:
        limits: of TTFT and TPOT.
        changes: seconds at which acceptance or load changes, ascending.
    """

    def __init__(self, limits: Limits | None = None, changes: Sequence[float] = ()) -> None:
        self._limits = limits or Limits()
        self._segments = Segments(changes) if changes else None
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
        self._pieces: list[_Piece] = []
        self._stride = 1
        self._piece = [0.0, 0.0, 0.0, 0.0]
        self._piece_steps = 0
        self._piece_began = now

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
        verified = 0
        for k, count in enumerate(by_k):
            if count:
                self._k_counts[k] += count
                verified += k * count
        off = mode is Mode.OFF_WARM or mode is Mode.OFF_COLD
        self._switches += self._off is not None and off is not self._off
        self._off = off
        piece = self._piece
        piece[0] += batch_size
        piece[1] += verified
        piece[3] += off

    def step(self, now: float, seconds: float, batch_size: int, emitted: int) -> None:
        """Record a step that has ended now: its seconds, decoding requests and emitted tokens."""
        if self._segments is not None:
            self._segments.step(now, seconds, batch_size, emitted)
        self.steps += 1
        self.tokens += emitted
        self._piece[2] += emitted
        self._piece_steps += 1
        if self._piece_steps >= self._stride:
            self._close_piece(now)

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
            segments=[] if self._segments is None else self._segments.finished(),
            simulation_seconds=time.perf_counter() - self._wall,
            timeline=self._timeline(),
        )

    def _close_piece(self, now: float) -> None:
        requests, verified, emitted, off = self._piece
        elapsed = now - self._piece_began
        self._pieces.append(
            _Piece(now, elapsed, self._piece_steps, requests, verified, emitted, off)
        )
        self._piece = [0.0, 0.0, 0.0, 0.0]
        self._piece_steps = 0
        self._piece_began = now
        if len(self._pieces) >= 2 * _PIECES:
            pairs = zip(self._pieces[::2], self._pieces[1::2], strict=True)
            self._pieces = [first.joined(second) for first, second in pairs]
            self._stride *= 2

    def _timeline(self) -> Timeline:
        pieces = self._pieces
        return Timeline(
            now=[round(piece.now, 6) for piece in pieces],
            batch_size=[round(piece.requests / piece.steps, 6) for piece in pieces],
            k=[round(piece.verified / max(piece.requests, 1.0), 6) for piece in pieces],
            tokens_per_second=[
                round(piece.emitted / max(piece.elapsed, 1e-12), 6) for piece in pieces
            ],
            off=[round(piece.off / piece.steps, 6) for piece in pieces],
        )


class _Piece(NamedTuple):
    """Sums over some steps of the timeline."""

    now: float
    elapsed: float
    steps: float
    requests: float
    verified: float
    emitted: float
    off: float

    def joined(self, later: _Piece) -> _Piece:
        pairs = zip(self[1:], later[1:], strict=True)
        return _Piece(later.now, *(first + second for first, second in pairs))


def _percentiles(values: array[float], scale: float) -> Percentiles:
    if not values:
        return Percentiles()
    scaled = np.frombuffer(values, dtype=np.float64) * scale
    p50, p90, p99 = np.percentile(scaled, (50, 90, 99)).tolist()
    return Percentiles(p50, p90, p99, float(scaled.mean()))
