"""The guard hands back what is slower beyond doubt, at the loads where it is, and nothing else."""

import numpy as np
import pytest

from adaptive_spec.audit.blocks import BLOCK_STEPS
from adaptive_spec.audit.gain import Difference
from adaptive_spec.audit.guard import TOLERANCE, Guard
from adaptive_spec.config import Audit
from tests.core.audit.modelled import Server

pytestmark = pytest.mark.slow

SHARE = Audit(share=0.25, guard=True)
FRAME = 4 * BLOCK_STEPS


def jumps(step: int) -> int:
    return 8 if step // 1500 % 2 else 64


def handed_back(server: Server) -> list[str]:
    return list(server.auditor.status()["handed_back"])


@pytest.mark.parametrize("loss", [0.3, 0.1])
def test_a_slower_policy_is_handed_back_within_fifteen_blocks(loss: float) -> None:
    server = Server(lambda *_: -loss, config=SHARE)
    server.run(15 * FRAME)
    assert handed_back(server) == ["all", "17-32"]
    before = dict(server.steps)
    server.run(960)
    assert server.steps["policy"] - before["policy"] == pytest.approx(240, abs=72)


def test_the_policy_stays_at_the_loads_where_it_is_faster() -> None:
    server = Server(lambda load, _: 0.2 if load == 8 else -0.4, jumps, config=SHARE, prompts=0.0)
    server.run(30_000)
    assert "5-8" not in handed_back(server)
    assert "33-64" in handed_back(server)
    before = dict(server.steps)
    server.run(3000)  # half of them at each load
    assert 0.4 < (server.steps["engine"] - before["engine"]) / 3000 < 0.7


def test_a_policy_that_turns_bad_is_handed_back_and_one_that_mends_comes_back() -> None:
    def gain(_: int, now: float) -> float:
        return 0.1 if now < 600.0 else -0.3 if now < 4000.0 else 0.1

    server = Server(gain, config=SHARE, prompts=0.0)
    while server._now < 4000.0:
        server.run(5000)
        server._now += 400.0  # long pauses: the sequences of the last hour begin anew
    assert "17-32" in handed_back(server)
    for _ in range(16):
        server.run(2000)
        server._now += 400.0
    assert handed_back(server) == []
    assert server.auditor.status()["times_handed_back"] == 2


@pytest.mark.parametrize("loss", [0.0, 0.8 * TOLERANCE])
def test_a_policy_that_hardly_loses_is_not_handed_back_in_500_hours(loss: float) -> None:
    random = np.random.default_rng(0)
    times = 0
    for _ in range(250):
        guard = Guard()
        for now in np.linspace(0.0, 7200.0, 300):
            value, load = random.normal(-loss, 0.02), int(random.integers(4, 6))
            guard.add(Difference("engine", value, random.uniform(0.5, 1.5), load, float(now)))
        times += guard.times
    assert times == 0
