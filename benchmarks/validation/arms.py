"""Runs of the engine loop as published experiments made them: with drafts and without."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import NormalDist, fmean, harmonic_mean

import msgspec
import numpy as np

from adaptive_spec.policies.off import OffOptions, OffPolicy
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.policy import Policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.hazard import HazardModel, generate
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.drafters.chains import Eagle, NoDrafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.profile_file import HardwareProfile
from adaptive_spec.sim.load.base import Load
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.result import Result

_SEED = 1
_PARTS = 200
"""Requests that stand for a normal law, at its quantiles."""
_SURE = 20.0
"""Logit of a hazard that is as good as 0 or 1."""


def simulated(
    load: Load,
    data: AcceptanceData,
    profile: HardwareProfile,
    k: int,
    *,
    drafter: Drafter | None = None,
    options: EngineOptions | None = None,
    policy: Policy | None = None,
) -> Result:
    """One run with fixed K; with K = 0 there is no drafter at all.

    Args:
        load: when requests come.
        data: what would be accepted.
        profile: the machine; what only drafts cost stands in it.
        k: K of every step.
        drafter: with K > 0; an EAGLE chain if none is given.
        options: engine settings; Kmax is set to K.
        policy: instead of a fixed K.
    """
    if policy is None:
        policy = StaticPolicy(StaticOptions(k=k)) if k else OffPolicy(OffOptions())
    # Real engines do not shrink K before the pool runs out.
    settings = msgspec.structs.replace(
        options or EngineOptions(), max_draft_tokens=max(k, 1), memory_guard=False
    )
    used = (drafter or Eagle()) if k else NoDrafter()
    return Engine(load, data, used, Hardware(profile), policy, settings).run()


class Arms(msgspec.Struct, frozen=True, kw_only=True):
    """The two arms of a comparison, on the same requests; a request has one hazard.

    Attributes:
        load: makes the load anew for each run.
        lengths: output tokens of each acceptance record; requests name their record.
        profile: the machine.
        drafter: of the arm that speculates; None: an EAGLE chain.
        deviation: by which the logit of the hazard differs between requests.
    """

    load: Callable[[], Load]
    lengths: tuple[int, ...]
    profile: HardwareProfile
    drafter: Drafter | None = None
    deviation: float = 0.0

    def plain(self) -> Result:
        """Without a drafter."""
        return self._run(0.0, 0)

    def speculating(
        self,
        k: int,
        accepted_length: float,
        known_k: int | None = None,
        *,
        of_requests: bool = False,
    ) -> Result:
        """With fixed K and the hazards that give this many tokens per step, bonus token included.

        Args:
            k: fixed K.
            accepted_length: mean over all steps.
            known_k: K at which it was measured; None: `k`.
            of_requests: it is the mean over requests instead.
        """
        level = level_of(accepted_length, known_k or k, self.deviation, of_requests=of_requests)
        return self._run(level, k)

    def _run(self, level: float, k: int) -> Result:
        lengths = np.array(self.lengths, dtype=np.int64)
        model = HazardModel(
            name="published", position_logits=(level,), request_deviation=self.deviation
        )
        data = generate(model, depth=max(k, 1), seed=_SEED, output_tokens=lengths)
        return simulated(self.load(), data, self.profile, k, drafter=self.drafter)


def level_of(
    accepted_length: float, k: int, deviation: float = 0.0, *, of_requests: bool = False
) -> float:
    """Logit of the hazard at which requests have this accepted length together.

    A request with hazard h has the length 1 + h + ... + h^K. Requests of equal length take steps
    in inverse proportion, so that the mean over all steps is the harmonic one.

    Args:
        accepted_length: tokens per step, bonus token included.
        k: drafts of each step.
        deviation: standard deviation of the logit between requests.
        of_requests: the length is the arithmetic mean over requests.
    """
    mean = fmean if of_requests else harmonic_mean
    normal = NormalDist()
    apart = [deviation * normal.inv_cdf((part + 0.5) / _PARTS) for part in range(_PARTS)]
    low, high = -_SURE, _SURE
    for _ in range(60):
        middle = (low + high) / 2.0
        hazards = [1.0 / (1.0 + math.exp(-middle - each)) for each in apart]
        short = mean([sum(h**j for j in range(k + 1)) for h in hazards]) < accepted_length
        low, high = (middle, high) if short else (low, middle)
    return (low + high) / 2.0


def one_per_record(
    lengths: Sequence[int], prompt_tokens: int | Sequence[int], copies: int = 1
) -> Iterator[Request]:
    """Yield `copies` requests in a row for each record, which they follow to its end.

    Args:
        lengths: output tokens of each record.
        prompt_tokens: of all of them, or of each.
        copies: requests per record.
    """
    prompts = [prompt_tokens] * len(lengths) if isinstance(prompt_tokens, int) else prompt_tokens
    for record, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        for copy in range(copies):
            yield Request(
                id=f"{record}.{copy}",
                arrival=0.0,
                prompt_tokens=prompt,
                output_tokens=length,
                record=record,
            )


class Batches:
    """A load of whole batches, as benchmark scripts submit them.

    Each begins when every request of the one before has ended; the last may be smaller.

    Args:
        requests: in order.
        sizes: of the batches, over and over.
    """

    closed = True
    endless = False

    def __init__(self, requests: Iterable[Request], sizes: Sequence[int]) -> None:
        self._requests = iter(requests)
        self._next = next(self._requests, None)
        self._sizes = itertools.cycle(sizes)
        self._size = next(self._sizes)
        self._taken = self._running = 0
        self._begins = 0.0

    def next_arrival(self) -> float:
        """Arrival of the next request: with its batch, once the batch before has ended."""
        if self._next is None or self._taken == self._size:
            return math.inf
        return self._begins

    def take_request(self) -> Request:
        """The next request of the batch."""
        request = self._next
        assert request is not None
        self._next = next(self._requests, None)
        self._taken += 1
        self._running += 1
        return msgspec.structs.replace(request, arrival=self._begins)

    def finished(self, request: Request, now: float) -> None:
        """The last of a batch lets the next one begin."""
        self._running -= 1
        if self._running == 0:
            self._taken = 0
            self._size = next(self._sizes)
            self._begins = now
