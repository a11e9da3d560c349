"""A small simulated server with plain costs, for tests of the engine loop."""

from collections.abc import Iterator

import numpy as np

from adaptive_spec.policy import Policy, build_policy
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.base import DraftCost
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.load.base import ClosedLoad, Load, OpenLoad
from adaptive_spec.sim.load.request import Request
from adaptive_spec.step import Level, Mode, SpecPlan


class PlainHardware:
    """Seconds = fixed + token N + context C + prefill P."""

    name = "plain"
    source = "made up for tests"
    memory_bytes = 80e9
    weight_bytes = 16e9
    kv_bytes_per_token = 131072.0
    layers = 32
    outside_graph_seconds = 0.0
    verify_per_context_token = 0.0
    any_draft = 0.0
    any_draft_per_request = 0.0

    def __init__(
        self,
        fixed: float = 7e-3,
        token: float = 2e-5,
        context: float = 4e-8,
        token_buckets: tuple[int, ...] = (),
        outside: float = 0.0,
    ) -> None:
        self.fixed, self.token, self.context = fixed, token, context
        self.token_buckets = token_buckets
        self.outside_graph_seconds = outside

    def verify_seconds(self, batch_size, batch_tokens, context_tokens, prefill, prefill_context):
        return self.fixed + self.token * (batch_tokens + prefill) + self.context * context_tokens

    def pass_seconds(self, share, batch_size, context_tokens):
        return share * self.fixed

    def measured_draft(self, drafter):
        return None


class PlainDrafter:
    """A chain at a fixed price per pass."""

    name = "plain"
    summary = source = "made up for tests"
    depth_follows = True
    acceptance_list = "eagle"

    def __init__(self, pass_: float = 0.7e-3, off_pass: bool = True, stale: bool = True) -> None:
        self.pass_, self.off_pass, self.stale_after_cold = pass_, off_pass, stale

    def cost_on(self, hardware):
        return DraftCost(pass_=self.pass_)

    def extra_tokens(self, k):
        return 0

    def tree_nodes(self, ks):
        return ()

    def most_drafts(self, depth):
        return depth

    def weight_bytes(self, hardware):
        return 0.0

    def kv_share(self, hardware):
        return 0.0

    def shape(self, data, random):
        return data


def independent(
    hazard: float, positions: int, depth: int = 8, seed: int = 0, records: int = 1
) -> AcceptanceData:
    """Records in which every draft is accepted with this probability, independently.

    Requests that read the same record at the same time accept alike.
    """
    random = np.random.default_rng(seed)
    accepted = np.minimum(random.geometric(1.0 - hazard, positions) - 1, depth)
    return AcceptanceData(
        name="independent",
        source="drawn for a test",
        accepted=accepted.astype(np.uint8),
        offsets=np.linspace(0, positions, records + 1).astype(np.int64),
        prompt_tokens=np.full(records, 10),
        labels=("",) * records,
        depth=depth,
    )


def requests(lengths: list[tuple[float, int, int]]) -> Iterator[Request]:
    """Requests from (arrival, prompt tokens, output tokens)."""
    for number, (arrival, prompt, output) in enumerate(lengths):
        yield Request(id=f"r{number}", arrival=arrival, prompt_tokens=prompt, output_tokens=output)


def endless(prompt: int, output: int) -> Iterator[Request]:
    """The same request for ever."""
    number = 0
    while True:
        yield Request(id=f"r{number}", arrival=0.0, prompt_tokens=prompt, output_tokens=output)
        number += 1


def open_load(lengths: list[tuple[float, int, int]]) -> Load:
    return OpenLoad(requests(lengths))


def closed_load(concurrency: int, prompt: int = 20, output: int = 100) -> Load:
    return ClosedLoad(endless(prompt, output), concurrency)


def server(
    load: Load,
    policy: Policy | str = "goodput",
    *,
    data: AcceptanceData | None = None,
    hardware: PlainHardware | None = None,
    drafter: PlainDrafter | None = None,
    seed: int = 0,
    trace_directory: str | None = None,
    policy_options: dict | None = None,
    counts: bool = False,
    **options: object,
) -> Engine:
    if isinstance(policy, str):
        policy = build_policy(policy, policy_options or {}, seed=seed)
    return Engine(
        load,
        data or independent(0.7, 5000),
        drafter or PlainDrafter(),
        hardware or PlainHardware(),
        policy,
        EngineOptions(**options),
        seed=seed,
        trace_directory=trace_directory,
        counts=counts,
    )


class RandomK(StatelessPolicy):
    """Any K per request, any depth, any mode."""

    name = "random_k"

    def __init__(self, seed: int, modes: tuple[Mode, ...] = (Mode.ON,)) -> None:
        self._random = np.random.default_rng(seed)
        self._modes = modes

    def plan(self, context):
        mode = self._modes[self._random.integers(len(self._modes))]
        off = mode in (Mode.OFF_WARM, Mode.OFF_COLD)
        kmax = context.capability.max_draft_tokens
        if context.capability.level is Level.UNIFORM:
            k = int(self._random.integers(kmax + 1))
            verify = np.minimum(context.draft_available, k)
        else:
            verify = self._random.integers(0, context.draft_available + 1)
        return SpecPlan(
            step=context.step,
            verify=np.zeros_like(verify) if off else verify,
            draft_depth=0 if off else int(self._random.integers(kmax + 1)),
            mode=mode,
            reason="random",
        )
