"""Runs of the engine loop as published experiments made them: with drafts and without."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from adaptive_spec.policies.off import OffOptions, OffPolicy
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.policy import Policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.hazard import constant_model, generate
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.drafters.chains import NoDrafter
from adaptive_spec.sim.drafters.eagle import Eagle
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.profile_file import HardwareProfile
from adaptive_spec.sim.load.base import ClosedLoad, Load
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.results.result import Result

_SEED = 1


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
    """The two arms of a comparison, on the same requests; acceptance has one hazard.

    Attributes:
        load: makes the load anew for each run.
        lengths: output tokens of each acceptance record; requests name their record.
        profile: the machine.
        drafter: of the arm that speculates; None: an EAGLE chain.
    """

    load: Callable[[], Load]
    lengths: tuple[int, ...]
    profile: HardwareProfile
    drafter: Drafter | None = None

    def plain(self) -> Result:
        """Without a drafter."""
        return self._run(0.5, 0)

    def speculating(self, k: int, accepted_length: float, known_k: int | None = None) -> Result:
        """With fixed K and the hazard that gives this many tokens per step, bonus token included.

        At `known_k`, that is; by default at K itself.
        """
        return self._run(constant_hazard(accepted_length, known_k or k), k)

    def _run(self, hazard: float, k: int) -> Result:
        lengths = np.array(self.lengths, dtype=np.int64)
        model = constant_model(hazard)
        data = generate(model, depth=max(k, 1), seed=_SEED, output_tokens=lengths)
        return simulated(self.load(), data, self.profile, k, drafter=self.drafter)


def like_requests(
    profile: HardwareProfile,
    requests: int,
    prompt_tokens: int,
    output_tokens: int,
) -> Arms:
    """Return the arms of a closed loop whose requests all have the same lengths."""
    lengths = (output_tokens,) * requests
    return Arms(
        load=lambda: ClosedLoad(one_per_record(lengths, prompt_tokens), 1),
        lengths=lengths,
        profile=profile,
    )


def constant_hazard(accepted_length: float, k: int) -> float:
    """The hazard h with 1 + h + ... + h^K = `accepted_length`; 0..1."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        length = sum(middle**j for j in range(k + 1))
        low, high = (middle, high) if length < accepted_length else (low, middle)
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
    """

    closed = True
    endless = False

    def __init__(self, requests: Iterable[Request], batch_size: int) -> None:
        self._requests = iter(requests)
        self._next = next(self._requests, None)
        self._batch_size = batch_size
        self._taken = self._running = 0
        self._begins = 0.0

    def next_arrival(self) -> float:
        """Arrival of the next request: with its batch, once the batch before has ended."""
        if self._next is None or self._taken == self._batch_size:
            return math.inf
        return self._begins

    def take(self) -> Request:
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
            self._begins = now
