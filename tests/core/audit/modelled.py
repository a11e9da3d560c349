"""A modelled server whose arms have a known gain, driven by an auditor."""

import functools
import math
from collections.abc import Callable

import msgspec
import numpy as np

from adaptive_spec.audit.auditor import Auditor, Change
from adaptive_spec.config import Audit
from adaptive_spec.step import StepOutcome
from tests import steps

CAPABILITY = steps.full(4)
LENGTH = 100.0
"""Tokens of a request in the mean."""


@functools.cache
def _outcome(requests: int) -> StepOutcome:
    return steps.outcome(steps.context(requests, CAPABILITY), 4, 0)


class Server:
    """Steps of a server.

    Args:
        gain: ln(tokens per second of the policy over the engine's own K), by requests and time.
        load: requests by number of the step.
        noise: standard deviation of the logarithm of step times.
        prompts: probability of a step with 500 prompt tokens.
        stalls: probability of a step that takes twenty times as long.
        seed: of all of it, and of the places of blocks.
        config: of the audit.
        waits: requests in a step, by arm and load.
        deeper: tokens more that the policy emits for each request in a step.
        batch: fixed seconds of a batch of prompts, which follows a step in which requests end, one
            in `LENGTH` tokens; 0: no such batches.
    """

    def __init__(
        self,
        gain: Callable[[int, float], float],
        load: Callable[[int], int] = lambda _: 32,
        *,
        noise: float = 0.1,
        prompts: float = 0.1,
        stalls: float = 0.0,
        seed: int = 0,
        config: Audit | None = None,
        waits: Callable[[str, int], int] = lambda _, requests: requests,
        deeper: int = 0,
        batch: float = 0.0,
    ) -> None:
        self.auditor = Auditor(config or Audit(share=0.2), CAPABILITY, seed)
        self.changes: list[tuple[int, Change]] = []
        self.steps = {"policy": 0, "engine": 0, "none": 0}
        self.tokens = self.seconds = 0.0
        self._gain, self._load, self._waits = gain, load, waits
        self._noise, self._prompts, self._stalls = noise, prompts, stalls
        self._deeper, self._batch = deeper, batch
        self._random = np.random.default_rng(seed)
        self._now = 0.0
        self._step = 0

    def run(self, number: int) -> None:
        """Do so many steps."""
        random = self._random
        for _ in range(number):
            requests = self._load(self._step)
            arm, placed = self.auditor.arm(requests, self._now, cold=False)
            requests = self._waits(arm, requests)
            prompt = 500 * int(random.random() < self._prompts)
            accepted = random.integers(0, 3, requests) + self._deeper * (arm == "policy")
            seconds = (0.01 + 1e-4 * requests) * math.exp(self._noise * random.normal())
            if arm == "policy":
                seconds *= math.exp(-self._gain(requests, self._now))
            seconds += 2e-5 * prompt
            if random.random() < self._stalls:
                seconds *= 20.0
            self._now += seconds
            ended = random.poisson((accepted + 1).sum() / LENGTH) if self._batch else 0
            batches = [(ended, 100 * ended, self._batch + 1e-3 * ended)] if ended else []
            waited = sum(each for _, _, each in batches)
            outcome = msgspec.structs.replace(
                _outcome(requests),
                emitted=accepted + 1,
                prefill_tokens=prompt,
                seconds=seconds,
                now=self._now,
                prompt_batches=tuple(batches),
            )
            self._now += waited
            for change in self.auditor.observe(placed, outcome):
                self.changes.append((self._step, change))
            self.steps[arm] += 1
            self.tokens += float(outcome.emitted.sum())
            self.seconds += seconds + waited
            self._step += 1
