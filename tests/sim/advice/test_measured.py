"""The gain that audit blocks have measured is read from the trace."""

import math
from pathlib import Path

import numpy as np
import pytest

from adaptive_spec import Config, Controller
from adaptive_spec.config import Audit, Trace
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.sim.advice.measured import ratio
from adaptive_spec.sim.advice.summary import observe
from tests import steps
from tests.core.controller.answers import PATIENT

OWN, PLANNED, REQUESTS = 3, 1, 4


def audited(folder: Path, gain: float, number: int, seed: int) -> Controller:
    """A server of four requests at a time, whose plugin is faster by so much (ln)."""
    config = Config(
        audit=Audit(share=0.25), trace=Trace(directory=str(folder)), fail_open=PATIENT, seed=seed
    )
    controller = Controller(StaticPolicy(StaticOptions(k=PLANNED)), steps.full(4), config)
    random, now = np.random.default_rng(seed), 0.0
    for step in range(number):
        prompt = 200 * int(random.random() < 0.2)
        context = steps.context(
            REQUESTS, 4, step=step, engine_k=OWN, now=now, prefill_tokens=prompt
        )
        plan = controller.plan(context)
        faster = gain if plan.verify[0] == PLANNED else 0.0
        seconds = 0.01 * math.exp(0.05 * random.normal() - faster) + 1e-5 * prompt
        now += seconds
        accepted = random.integers(0, 2, REQUESTS)
        outcome = steps.outcome(context, plan.verify, accepted, seconds=seconds, now=now)
        controller.observe(outcome)
    controller.close()
    return controller


def test_a_trace_says_what_the_server_has_measured(tmp_path: Path) -> None:
    server = audited(tmp_path, 0.1, 6000, seed=1)
    measured = observe(tmp_path).measured
    said, read = server.status()["audit"]["arms"]["engine"], ratio(measured)
    assert read is not None
    assert measured.count == said["blocks"] > 20
    figures = [said[name] + 1.0 for name in ("gain", "low", "high")]
    assert list(read) == pytest.approx(figures, rel=1e-6)


def test_traces_of_several_servers_add_up(tmp_path: Path) -> None:
    servers = [audited(tmp_path / str(seed), 0.1, 3000, seed) for seed in (1, 2)]
    measured = observe(tmp_path).measured
    blocks = [each.status()["audit"]["arms"]["engine"]["blocks"] for each in servers]
    assert measured.count == sum(blocks)


def test_few_blocks_measure_nothing(tmp_path: Path) -> None:
    audited(tmp_path, 0.1, 1200, seed=1)
    assert ratio(observe(tmp_path).measured) is None
