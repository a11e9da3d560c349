"""K per request on model runner V2 at the level of a GPU: padded batches, captured depths.

The kernels run in Triton's interpreter. vLLM's own dispatch decides which steps run in full graphs.
Instead of a replay the model runs eagerly on what the graph would read (support/v2_varlen.py).
"""

from typing import Any

import pytest
import v2_varlen
from engines import KMAX, PATIENT, RANDOM, Job, check_same
from sampled_completions import ENGINE, check_alike, sample
from scenarios import prompts
from switchable_policies import ColdForAWhile, UniformPolicy
from v2_engines import SMALL, Observed, V2Engines, small_crowd

pytestmark = pytest.mark.engine

SAMPLES_PER_PROMPT, TOGETHER, TOKENS = 240, 6, 5


@pytest.fixture(scope="module")
def as_on_a_gpu(models: dict[str, Any]) -> Any:
    engines = V2Engines(models)
    yield engines
    engines.close()


@pytest.fixture(scope="module")
def unspeculated(as_on_a_gpu: V2Engines) -> Observed:
    return as_on_a_gpu.run(small_crowd(), **SMALL)


@pytest.mark.parametrize(
    ("method", "asynchronous"),
    [
        ("eagle", True),
        pytest.param("draft_model", False, marks=pytest.mark.long),
        pytest.param("eagle", False, marks=pytest.mark.long),
    ],
)
def test_tokens_are_those_without_speculation_in_padded_batches_of_mixed_k(
    as_on_a_gpu: V2Engines, unspeculated: Observed, method: str, asynchronous: bool
) -> None:
    as_on_a_gpu.call(v2_varlen.plant)
    observed = as_on_a_gpu.run(
        small_crowd(), method, adaptive=RANDOM, asynchronous=asynchronous, **SMALL
    )
    graphs = as_on_a_gpu.call(v2_varlen.dispatched)
    check_same(observed.answers, unspeculated.answers)
    assert observed.failures == {}
    assert observed.left == 0
    assert observed.accepted > 0
    assert observed.preemptions > 0
    assert observed.capability[0] == ("FULL" if method == "eagle" else "VERIFY")
    assert graphs["FULL mixed"] > 5
    assert "PIECEWISE mixed" not in graphs
    assert "FULL prompts" not in graphs
    assert graphs["padding"] > 0


@pytest.mark.long  # test_v2_model_runner.py has cold times in every run
def test_tokens_are_the_same_around_a_cold_time(
    as_on_a_gpu: V2Engines, unspeculated: Observed
) -> None:
    as_on_a_gpu.call(v2_varlen.plant)
    observed = as_on_a_gpu.run(
        small_crowd(),
        "eagle",
        policy=ColdForAWhile(KMAX, 4, 9),
        adaptive=RANDOM,
        asynchronous=True,
        **SMALL,
    )
    check_same(observed.answers, unspeculated.answers)
    assert observed.failures == {}
    assert observed.left == 0
    assert observed.accepted > 0
    assert {0, KMAX} <= set(observed.verified)
    assert "PIECEWISE mixed" not in as_on_a_gpu.call(v2_varlen.dispatched)


def test_a_backend_that_refuses_leaves_one_k_per_batch(
    as_on_a_gpu: V2Engines, unspeculated: Observed
) -> None:
    """The gate expects varlen graphs, and the worker finds that its backend has none."""
    as_on_a_gpu.call(v2_varlen.plant, "UNIFORM_BATCH")
    observed = as_on_a_gpu.run(
        small_crowd(), "eagle", policy=UniformPolicy(), adaptive=RANDOM | {"seed": 6}, **SMALL
    )
    check_same(observed.answers, unspeculated.answers)
    assert observed.capability[0] == "UNIFORM"
    assert observed.failures == {}


@pytest.mark.parametrize("method", ["eagle", pytest.param("draft_model", marks=pytest.mark.long)])
def test_confidence_that_comes_late_changes_no_token_in_padded_batches(
    as_on_a_gpu: V2Engines, unspeculated: Observed, method: str
) -> None:
    """On a GPU what the drafter shows arrives with the results of its verification."""
    as_on_a_gpu.call(v2_varlen.plant)
    adaptive = {"policy": "goodput", "fail_open": PATIENT}
    shown = as_on_a_gpu.watch(
        small_crowd(), method, late=True, adaptive=adaptive, asynchronous=True, **SMALL
    )
    graphs = as_on_a_gpu.call(v2_varlen.dispatched)
    check_same(shown.answers, unspeculated.answers)
    assert shown.failures == {}
    assert {arrived.way for arrived in shown.arrived} == {"results of verification"}
    assert all(step.in_time is None for step in shown.steps)
    known = [step for step in shown.steps if step.late is not None and step.verified.any()]
    assert len(known) > 5
    assert graphs["FULL mixed"] > 0
    assert "PIECEWISE mixed" not in graphs


@pytest.mark.long
@pytest.mark.statistics
@pytest.mark.timeout(0)
def test_distribution_at_temperature_in_full_graphs_of_mixed_k(
    as_on_a_gpu: V2Engines, shelf: Any
) -> None:
    """Six samples at a time, so that each decoding batch is within the captured sizes.

    The drafts are the likeliest tokens: the kernel that samples drafts has a mask that the
    interpreter does not take. The target's own distribution is drawn on model runner V1.
    """
    options = {"temperature": 0.8, "max_tokens": TOKENS, "n": TOGETHER, "detokenize": False}
    waves = [(turn, p) for turn in range(SAMPLES_PER_PROMPT // TOGETHER) for p in range(2)]
    texts = prompts(2, 31)
    jobs = [
        Job(f"{p}-{turn}", texts[p], (TOKENS + 2) * wave, options)  # the wave before has ended
        for wave, (turn, p) in enumerate(waves)
    ]
    plain = sample(shelf.get(**ENGINE), 16 * SAMPLES_PER_PROMPT, prompt_count=2)
    shelf.clear()
    as_on_a_gpu.call(v2_varlen.plant)
    speculated = as_on_a_gpu.run(
        jobs,
        "draft_model",
        adaptive=RANDOM,
        speculation={"draft_sample_method": "greedy"},
        max_num_seqs=TOGETHER,
    )
    graphs = as_on_a_gpu.call(v2_varlen.dispatched)
    assert speculated.failures == {}
    assert speculated.accepted > SAMPLES_PER_PROMPT // 2, "speculation hardly ran"
    assert graphs["FULL mixed"] > len(waves), "few batches of mixed K ran in full graphs"
    assert "PIECEWISE mixed" not in graphs
    drawn: list[list[tuple[int, ...]]] = [[] for _ in texts]
    for name, answer in speculated.answers.items():
        drawn[int(name.partition("-")[0])] += answer.tokens
    assert [len(each) for each in drawn] == [SAMPLES_PER_PROMPT] * 2
    check_alike(drawn, plain)
