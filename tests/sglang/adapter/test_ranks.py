"""Ranks of a tensor-parallel group: one decision, one start; PyTorch is not needed here."""

import random
import threading
import types
from typing import Any

import pytest
from policies_for_tests import RecordingPolicy
from scheduler_loop import Loop

from adaptive_spec.adapters.sglang import attach as attaching
from adaptive_spec.adapters.sglang.agreement import OWN_SCHEDULE
from adaptive_spec.adapters.sglang.settings import Settings, Source
from adaptive_spec.config import Config, FailOpen
from adaptive_spec.engines.support import Support
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.step import Capability, Level

OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["sync", "overlap"])


class Ranks:
    """Two ranks as threads; the second gets what the first one sent."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=300)  # kernels are compiled once
        self.message = OWN_SCHEDULE

    def of(self, rank: int) -> Any:
        ranks = self

        class OneRank:
            size = 2
            replicas = False
            decides = rank == 0

            def settle(self, proposal: int) -> int:
                if rank == 0:
                    ranks.message = proposal
                ranks.barrier.wait()
                told = ranks.message
                ranks.barrier.wait()
                return told

        return OneRank()


@OVERLAP
@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_ranks_with_noisy_clocks_run_the_same_k_for_thousands_of_steps(
    overlap: bool, mode: Any
) -> None:
    ranks = Ranks()
    loops = [Loop(seed=7, overlap=overlap) for _ in range(2)]
    errors: list[BaseException] = []

    def noisy(seed: int) -> Any:
        source = random.Random(seed)
        now = [1000.0 * seed]

        def clock() -> float:
            now[0] += source.expovariate(100.0)
            return now[0]

        return clock

    def serve(rank: int) -> None:
        try:
            policy: Any = GoodputPolicy(GoodputOptions(), seed=rank)
            if rank == 0:
                # A policy that fails now and then: every rank must fall back alike.
                plan, count = policy.plan, [0]

                def fails(context: Any) -> Any:
                    count[0] += 1
                    if count[0] % 7 == 0:
                        raise RuntimeError("planted")
                    return plan(context)

                policy.plan = fails
            config = Config(mode=mode, fail_open=FailOpen(failures_to_bench=10**9))
            loops[rank].attach(
                policy,
                config=config,
                agreement=ranks.of(rank),
                clock=noisy(rank + 1),
                watching=mode != "on",
                dwell=4,
            )
            loops[rank].run(2000 if mode == "on" else 300)
        except BaseException as error:
            errors.append(error)
            ranks.barrier.abort()

    threads = [threading.Thread(target=serve, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert loops[0].history == loops[1].history
    assert loops[0].own.fed == loops[1].own.fed
    if mode == "on":
        assert len(loops[0].history) > 1000
        assert len({k for _, k in loops[0].history}) > 2


def test_a_rank_that_cannot_reach_the_others_leaves_k_alone() -> None:
    class Broken:
        size, decides, replicas = 2, True, False

        def settle(self, proposal: int) -> int:
            raise ConnectionError("gone")

    loop, stock = Loop(), Loop()
    driver = loop.attach(RecordingPolicy(), agreement=Broken())
    for each in (loop, stock):
        each.run(100)
    assert loop.history == stock.history
    assert driver.watching


class OtherRanks:
    """All other ranks are ready, or one is not."""

    size = 2
    replicas = False

    def __init__(self, *, decides: bool, others: bool) -> None:
        self.decides, self._others = decides, others
        self.said: list[bool] = []

    def all_ready(self, ready: bool) -> bool:
        self.said.append(ready)
        return ready and self._others


@pytest.mark.parametrize(
    ("decides", "policy", "others", "said"),
    [
        (True, "off", True, ""),
        (False, "off", True, ""),
        (True, "off", False, "another rank"),
        (False, "off", False, "another rank"),
        # Only rank 0 builds a policy.
        (True, "magic", True, "unknown policy 'magic'"),
    ],
)
def test_nothing_is_switched_on_unless_all_ranks_can(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    decides: bool,
    policy: str,
    others: bool,
    said: str,
) -> None:
    loop: Any = Loop()
    loop.draft_worker = types.SimpleNamespace(steered_params=loop.params)
    loop.server_args = None
    ranks = OtherRanks(decides=decides, others=others)
    capability = Capability(level=Level.UNIFORM, max_draft_tokens=7)
    monkeypatch.setattr(attaching, "Agreement", lambda *_: ranks)
    monkeypatch.setattr(attaching, "detect", lambda *_: Support(capability=capability))
    found = attaching.attach(loop, Settings(config=Config(policy=policy)), Source())
    assert ranks.said == [policy == "off"]
    if policy == "magic" or not others:
        assert found is None
        assert loop.params.driver is None
        assert said in caplog.text
    else:
        assert loop.params.driver is found.driver
