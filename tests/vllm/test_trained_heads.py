"""Trained MTP and EAGLE-3 heads on the bench target: real acceptance, the tokens stay the same.

MTP is part of its target, which is the bench target in the form of MiMo, so references and
distributions of the plain target hold for it, too.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from engines import KMAX, RANDOM, Engine, Job, check_same
from recording import record_steps
from sampled_completions import ENGINE, check_alike, sample
from scenarios import SCENARIOS

from adaptive_spec import check_adapter
from tests.prompts import PROMPTS

pytestmark = pytest.mark.engine

HEADS = ("mtp", "eagle3")
SAMPLES_PER_PROMPT = 1536
SCHEDULING = [
    pytest.param(False, id="sync"),
    pytest.param(True, id="async", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=HEADS)
def head(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def speculating(
    shelf: Any, models: dict[str, Path], head: str, adaptive: dict[str, Any], **options: Any
) -> Engine:
    if head == "mtp":
        options["model"] = str(models["mtp"])
    engine: Engine = shelf.get(head, adaptive=adaptive, **options)
    return engine


@pytest.fixture(params=SCHEDULING)
def engine(
    request: pytest.FixtureRequest, shelf: Any, models: dict[str, Path], head: str
) -> Engine:
    """An engine that speculates with the head at random K."""
    return speculating(shelf, models, head, RANDOM, asynchronous=request.param)


def check_tokens(engine: Engine, jobs: Sequence[Job], expected: dict[str, Any]) -> list[Any]:
    """Run the jobs; return the outcomes of the steps."""
    record = record_steps(engine)
    answers = engine.run(jobs)
    check_same(answers, expected)
    assert engine.controller.counters.failures == {}
    check_adapter(record, live_requests=len(engine.controller.slots))
    return [outcome for _, _, outcome in record if outcome is not None]


def test_tokens_are_those_without_speculation(engine: Engine, reference: dict[str, Any]) -> None:
    """Under preemption, prompts in chunks and reused prefixes, K changes at each step."""
    before = engine.preemptions
    outcomes = check_tokens(engine, SCENARIOS["crowded"](), reference["crowded"])
    assert engine.controller.capability.depth_follows
    assert {int(k) for outcome in outcomes for k in outcome.verified} == set(range(KMAX + 1))
    assert any(outcome.ragged for outcome in outcomes)
    assert engine.preemptions - before >= 5
    assert max(int(outcome.accepted.max(initial=0)) for outcome in outcomes) >= KMAX - 1


@pytest.mark.long
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "crowded"])
def test_tokens_of_other_traffic(engine: Engine, reference: dict[str, Any], scenario: str) -> None:
    check_tokens(engine, SCENARIOS[scenario](), reference[scenario])


def test_acceptance_differs_by_kind_of_text(shelf: Any, models: dict[str, Path], head: str) -> None:
    engine = speculating(shelf, models, head, RANDOM, asynchronous=False)
    by_kind = json.loads(PROMPTS.read_text(encoding="utf-8"))
    rates = {}
    for kind in ("json", "prose"):
        before = engine.controller.status()
        engine.run([Job(f"{kind}-{n}", text) for n, text in enumerate(by_kind[kind][:8])])
        after = engine.controller.status()
        accepted, verified = (
            after[name] - before[name] for name in ("accepted_tokens", "verified_tokens")
        )
        rates[kind] = accepted / verified
    assert rates["json"] > rates["prose"] + 0.15, rates


@pytest.mark.statistics
@pytest.mark.long
@pytest.mark.parametrize("draft_sampling", ["probabilistic", "greedy"])
def test_distribution_at_temperature(
    shelf: Any, models: dict[str, Path], head: str, draft_sampling: str
) -> None:
    plain = sample(shelf.get(**ENGINE), SAMPLES_PER_PROMPT)
    speculation = {"draft_sample_method": draft_sampling}
    engine = speculating(shelf, models, head, RANDOM, speculation=speculation, **ENGINE)
    speculated = sample(engine, SAMPLES_PER_PROMPT)
    status = engine.controller.status()
    assert status["accepted_tokens"] > 1000, "speculation hardly ran"
    assert status["fail_opens"] == {}
    check_alike(speculated, plain)
