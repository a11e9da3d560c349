"""`advise` on a trace of the scripted engine, against that engine: the first draft's acceptance
depends on K, and `advise` must not take one K's for another's."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.advice import setups
from adaptive_spec.sim.advice.summary import observe
from adaptive_spec.sim.advice.worlds import recorded_world
from adaptive_spec.sim.hardware.from_trace import read_timed_steps
from benchmarks.advise_judged import KMAX, SHARE, record, run
from benchmarks.judge.arms import parse_arm
from benchmarks.judge.device import DEVICES
from benchmarks.judge.engines import EngineKind
from benchmarks.judge.records import lines
from benchmarks.judge.scripted_vllm import ENVIRONMENT, ScriptedVllm
from benchmarks.judge.traffic import Piece, Traffic, jobs, serve

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="vLLM is not installed"),
]

CLIENTS, REQUESTS = 32, 1000
TRAFFIC = Traffic(pieces=(Piece(CLIENTS, REQUESTS),), records=("llama:code",), longest=512)
BOUND = 0.012


@pytest.fixture(scope="module")
def engine() -> Iterator[ScriptedVllm]:
    """An engine; skipped without the records."""
    try:
        lines("llama:code", "eagle", KMAX)
    except DataError as error:
        pytest.skip(str(error))
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    yield ScriptedVllm(EngineKind("eagle", KMAX))
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def trace(engine: ScriptedVllm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps of a server that runs K = 7, and another K in 6 % of its steps."""
    folder = tmp_path_factory.mktemp("trace")
    record(engine, f"k{KMAX}", folder, share=SHARE, traffic=TRAFFIC)
    return folder


def test_a_trace_of_k_7_predicts_other_fixed_k(engine: ScriptedVllm, trace: Path) -> None:
    observed, steps = observe([trace]), read_timed_steps([trace])
    assert observed.k_share[KMAX] > 0.8  # the server's own K, not the plugin's
    world = recorded_world(observed, steps, drafter="eagle", seed=0)
    errors = {}
    for k in (1, 2, 3):
        predicted = world.run(setups.static(k), CLIENTS).tokens_per_second
        errors[k] = predicted / run(engine, parse_arm(f"k{k}"), TRAFFIC) - 1.0
    assert max(map(abs, errors.values())) <= BOUND, errors


def test_a_trace_is_a_record_for_the_judge(engine: ScriptedVllm, trace: Path) -> None:
    played = lines(str(trace), "eagle", KMAX)
    assert played.data.records > 900
    engine.use(parse_arm("k3"), DEVICES["h100-8b"])
    asked = Traffic(pieces=(Piece(8, 24),), records=(str(trace),))
    served = serve(engine, asked, jobs(asked, "eagle", KMAX, 1))
    assert served.sent > 0
    assert sum(work.emitted for work in engine.recorder.pop_steps()) > 24
