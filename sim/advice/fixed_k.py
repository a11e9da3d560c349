"""Throughput of one K for all requests, from sums over requests: nothing is simulated.

In a closed loop each client runs one request after another: its prompt in c steps, then s steps of
decoding, in which it emits all its tokens but the first. Over requests, weighted by how often they
come, a client emits tokens / (s + c) per step, and in a share c / (s + c) of the steps it runs a
prompt. The prompts of n clients in a step are drawn binomially with that share. The mean duration
of a step is the sum over their number. What is left out: the order of requests, and preemptions (a
pool that is too small holds fewer clients instead).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.load.request import UNKNOWN_PROMPT_TOKENS
from adaptive_spec.step import FloatArray, IntArray

_PROMPT_LENGTHS = 4
"""Quantiles of the prompt lengths that a step with prompts is priced at."""
_RARE = 1e-4
"""Probability of so many prompts in a step below which it is left out."""


@dataclass(frozen=True)
class Replay:
    """All records replayed with one K.

    Attributes:
        k: drafts verified where a request may draft so many.
        steps, verified, context, shortened: [R] steps of decoding, and over them the sums of
            verified drafts, of context tokens, and of steps with fewer than K drafts.
        progress: [positions] steps to that output position, all records in a row.
    """

    k: int
    steps: FloatArray
    verified: FloatArray
    context: FloatArray
    shortened: FloatArray
    progress: FloatArray


def prompt_tokens(data: AcceptanceData) -> IntArray:
    """[R] prompt tokens of each record."""
    lengths: IntArray = np.where(
        data.prompt_tokens > 0, data.prompt_tokens, UNKNOWN_PROMPT_TOKENS
    ).astype(np.int64)
    return lengths


def replay(data: AcceptanceData, k: int) -> Replay:
    """Replay all records, as `adaptive_spec.sim.engine` would: the last token is never a draft's.

    `data` has been through `Drafter.shape`.
    """
    limit = np.full(len(data.accepted), k, dtype=np.int64)
    if data.tree_sizes is not None:
        right = np.count_nonzero(data.tree_sizes <= k, axis=1)
    else:
        if data.proposed is not None:
            limit = np.minimum(limit, data.proposed)
        right = np.minimum(data.accepted, limit).astype(np.int64)
    prompts, first, end = prompt_tokens(data), data.offsets[:-1], data.offsets[1:] - 1
    steps, verified, context, shortened = np.zeros((4, data.records))
    begins = np.zeros(len(data.accepted), dtype=np.bool_)
    place, alive = first.copy(), np.flatnonzero(first < end)
    while alive.size:
        at = place[alive]
        left = end[alive] - at - 1
        drafts = np.minimum(limit[at], left)
        if data.tree_sizes is not None:  # K counts nodes
            drafts = np.where(left > 0, k, 0)
        steps[alive] += 1
        verified[alive] += drafts
        shortened[alive] += drafts < k
        context[alive] += prompts[alive] + at - first[alive] + 1
        begins[at] = True
        place[alive] = at + np.minimum(right[at], left) + 1
        alive = alive[place[alive] < end[alive]]
    before = np.concatenate(([0], np.cumsum(begins)))  # no step begins at the last position
    known = begins.copy()
    known[end] = True
    places = np.flatnonzero(known)
    progress = np.interp(np.arange(len(begins)), places, before[places])
    return Replay(k, steps, verified, context, shortened, progress)


@dataclass(frozen=True)
class FixedK:
    """One K for all requests on one machine.

    Attributes:
        replay: of the records.
        prompts: [R] prompt tokens.
        tokens: [R] output tokens.
        time: of steps.
        drafter, options: of the engine.
        depth: passes that the drafter makes in a step.
        cold: none, not even the one that keeps its state current.
    """

    replay: Replay
    prompts: IntArray
    tokens: IntArray
    time: StepTime
    drafter: Drafter
    options: EngineOptions
    depth: int
    cold: bool

    def seconds(
        self, batch: float, context: float, prompts: float, tokens: float, attended: float
    ) -> float:
        """Mean duration of a step.

        Args:
            batch: decoding requests.
            context: sum of their context lengths.
            prompts: requests whose prompts end in the step.
            tokens: prompt tokens.
            attended: for each of these, the tokens before it, summed.
        """
        played = self.replay
        steps = max(float(played.steps.sum()), 1.0)
        drafts = float(played.verified.sum()) / steps
        # A step is ragged unless all requests, or none, have room for K drafts.
        whole = 1.0 - float(played.shortened.sum()) / steps
        ragged = 1.0 - whole**batch - (1.0 - whole) ** batch if batch > 1.0 else 0.0
        extra = self.drafter.extra_tokens(played.k) if drafts else 0
        even, uneven = (
            self.time.verify(
                batch,
                batch * (1.0 + drafts + extra),
                context,
                tokens,
                attended,
                any_draft=batch > 0 and drafts > 0,
                ragged=is_ragged,
            )
            for is_ragged in (False, True)
        )
        drafting = self.time.draft(batch + prompts, self.depth, context, cold=self.cold)
        return even + max(ragged, 0.0) * (uneven - even) + drafting

    def run(self, clients: int, weights: IntArray) -> tuple[float, FloatArray]:
        """Serve a closed loop; return tokens per second, and seconds per output token by record.

        Args:
            clients: at a time.
            weights: [R] how often each request comes.
        """
        played, options = self.replay, self.options
        chunks = -(-self.prompts // options.max_batch_tokens)
        summed = np.array([played.steps, chunks, played.context, self.tokens])
        # BLAS shares a long product out by cores, and its last digits depend on how many.
        decoding, prompting, context, emitted = np.einsum("sr,r->s", summed, weights).tolist()
        context /= max(decoding, 1.0)
        if options.kv_tokens is not None:
            held = context + played.k + options.block_tokens
            clients = max(min(clients, int(options.kv_tokens / held)), 1)
        share = prompting / (decoding + prompting)
        lengths = _quantiles(self.prompts / chunks, weights * chunks)

        def step(prompts: int) -> float:
            batch = clients - prompts
            return float(
                np.mean(
                    [
                        self.seconds(
                            batch,
                            batch * context,
                            prompts,
                            prompts * each,
                            prompts * each * (each - 1.0) / 2.0,
                        )
                        for each in (lengths if prompts else lengths[:1])
                    ]
                )
            )

        chances = binomial(clients, share)
        seconds = {n: step(n) for n, chance in enumerate(chances) if chance > _RARE}
        mean = _mean(seconds, chances)
        per_step = emitted / (decoding + prompting)
        others = binomial(clients - 1, share)
        own = _mean(seconds, others)
        spread = math.sqrt(_mean({n: (each - own) ** 2 for n, each in seconds.items()}, others))
        # The prompts of others that a request meets vary by request.
        met = np.random.default_rng(0).standard_normal(len(self.tokens)) * np.sqrt(played.steps)
        tpot = (own * played.steps + spread * met) / np.maximum(self.tokens - 1, 1)
        return clients * per_step / mean, np.maximum(tpot, 0.0)


def binomial(trials: int, chance: float) -> list[float]:
    """Return the probabilities of 0..trials successes."""
    if chance >= 1.0:
        return [0.0] * trials + [1.0]
    odds = chance / (1.0 - chance)
    found = [math.exp(trials * math.log1p(-chance))]
    for n in range(trials):
        found.append(found[-1] * odds * (trials - n) / (n + 1))
    return found


def _mean(values: dict[int, float], chances: list[float]) -> float:
    shares = {n: chances[n] for n in values if n < len(chances)}
    total = sum(shares.values())
    if not total:
        return next(iter(values.values()))
    return sum(share * values[n] for n, share in shares.items()) / total


def _quantiles(values: FloatArray, weights: IntArray) -> list[float]:
    """Return the mid-quantiles of weighted values."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    at = (np.arange(_PROMPT_LENGTHS) + 0.5) / _PROMPT_LENGTHS * reached[-1]
    found: list[float] = values[order][np.searchsorted(reached, at)].tolist()
    return found
