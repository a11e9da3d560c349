"""Model runner V2 really runs, its kernels in Triton's interpreter; see support/v2_engines.py.

A step takes about a fifth of a second there, so the traffic is small; the traffic of the V1 tests
runs under `make test-long`.
"""

from dataclasses import replace
from typing import Any

import pytest
from engines import KMAX, RANDOM, Answer, Job, check_same
from sampled_completions import ENGINE, LARGEST_BATCH, check_alike, sample
from scenarios import SCENARIOS, prompts
from switchable_policies import ColdForAWhile, CopiesWithoutDrafter, FixedPolicy, WarmForAWhile
from v2_engines import SMALL, Observed, V2Engines, small_crowd

pytestmark = pytest.mark.engine

SAMPLES_PER_PROMPT = 240
"""Against 16 times as many of the target, a temperature of 0.7 for 0.8 is noticed, 0.9 is not."""

CONFIGURATIONS = [
    pytest.param(("draft_model", False), id="draft_model-sync", marks=pytest.mark.long),
    pytest.param(("draft_model", True), id="draft_model-async", marks=pytest.mark.long),
    pytest.param(("eagle", False), id="eagle-sync", marks=pytest.mark.long),
    pytest.param(("eagle", True), id="eagle-async"),
]
"""(method, asynchronous). `test_v2_draft_signal.py` compares tokens in all four each time, and
`test_v2_ngram.py` those of n-gram."""


@pytest.fixture(scope="module")
def unspeculated(v2: V2Engines) -> Observed:
    observed = v2.run(small_crowd(), **SMALL)
    assert observed.runner == "vllm.v1.worker.cpu.model_runner", "this is not model runner V2"
    return observed


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def configuration(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    method, asynchronous = request.param
    return method, {"adaptive": RANDOM, "asynchronous": asynchronous, **SMALL}


@pytest.fixture(scope="module")
def crowded(v2: V2Engines, configuration: tuple[str, dict[str, Any]]) -> Observed:
    """The small crowd while K changes at random: per request, and in depth where it follows."""
    method, options = configuration
    return v2.run(small_crowd(), method, **options)


def test_tokens_are_those_without_speculation(
    configuration: tuple[str, dict[str, Any]], crowded: Observed, unspeculated: Observed
) -> None:
    asynchronous = configuration[1]["asynchronous"]
    assert crowded.runner == "vllm.v1.worker.cpu.model_runner"
    assert crowded.scheduler == ("AdaptiveAsyncScheduler" if asynchronous else "AdaptiveScheduler")
    check_same(crowded.answers, unspeculated.answers)
    assert crowded.failures == {}
    assert crowded.left == 0
    assert crowded.accepted > 0, "no draft was ever accepted"


def test_requests_of_one_step_run_with_different_k(crowded: Observed) -> None:
    assert set(crowded.verified) >= {0, 1, 2, 3}, "K did not vary"
    assert crowded.ragged_steps >= 5
    assert crowded.preemptions > 0


def test_capability_says_what_follows(
    configuration: tuple[str, dict[str, Any]], crowded: Observed
) -> None:
    if configuration[0] == "eagle":
        assert crowded.capability == ("FULL", True, "")
        assert {0, KMAX} < set(crowded.depths)
    else:
        assert crowded.capability == ("VERIFY", False, "")
        assert set(crowded.depths) == {KMAX}


def test_drafter_passes_follow_the_depth_where_the_capability_says_so(
    v2: V2Engines, configuration: tuple[str, dict[str, Any]], crowded: Observed
) -> None:
    method, options = configuration
    jobs = [Job("alone", prompts(1, 21)[0], 0, {"max_tokens": 24})]
    passes = {}
    for depth in (KMAX, 1, 0):
        observed = v2.run(jobs, method, policy=FixedPolicy(depth, depth), **options)
        passes[depth] = observed.drafter_passes
        assert max(observed.verified) == depth
    if crowded.capability[1]:
        # K = 0 keeps the one pass that writes the drafter's KV. Before the end of the request the
        # depth is no more than what is left of it.
        assert KMAX - 1 < passes.pop(KMAX) <= KMAX
        assert passes == {1: 1, 0: 1}
    else:
        assert passes == {KMAX: KMAX, 1: KMAX, 0: KMAX}


def test_no_pass_of_the_drafter_runs_while_cold(
    v2: V2Engines, configuration: tuple[str, dict[str, Any]], unspeculated: Observed
) -> None:
    method, options = configuration
    observed = v2.run(small_crowd(), method, policy=ColdForAWhile(KMAX, 1, 1 << 30), **options)
    assert observed.drafter_passes == 0
    assert set(observed.verified) == {0}
    assert set(observed.depths) == {0}
    check_same(observed.answers, unspeculated.answers)
    assert observed.failures == {}


def test_requests_after_a_cold_time_are_drafted_for(
    v2: V2Engines, configuration: tuple[str, dict[str, Any]], unspeculated: Observed
) -> None:
    method, options = configuration
    observed = v2.run(small_crowd(), method, policy=ColdForAWhile(KMAX, 4, 9), **options)
    check_same(observed.answers, unspeculated.answers)
    assert observed.accepted > 0
    assert KMAX in observed.verified
    assert observed.failures == {}
    assert observed.left == 0


@pytest.mark.long  # test_upstream_reports.py has runner V1's
def test_drafts_after_a_warm_time_are_accepted_as_if_there_had_been_none(v2: V2Engines) -> None:
    """vllm-metal#716: a drafter that ingested nothing at K = 0 was wrong from then on."""
    # The bench's EAGLE head drafts the same whatever is in its KV cache.
    options = SMALL | {"num_gpu_blocks_override": 24, "adaptive": RANDOM, "asynchronous": True}
    jobs = [Job(f"text-{n}", text, 0, {"max_tokens": 40}) for n, text in enumerate(prompts(4, 5))]
    seen = []
    for policy in (FixedPolicy(KMAX), WarmForAWhile(KMAX, 4, 10)):
        observed = v2.run(jobs, "draft_model", policy=policy, **options)
        assert observed.failures == {}
        seen.append(observed.by_place)
    assert 0 in observed.verified
    without, with_pause = seen
    both = without.keys() & with_pause.keys()
    assert len(both) > 20
    # A draft depends on the text before it alone; rounding differs with the batch. Without the
    # drafter's passes in these steps a quarter of the places differ.
    different = [place for place in both if without[place] != with_pause[place]]
    assert len(different) <= 0.1 * len(both)


@pytest.mark.long
def test_tokens_are_the_same_where_requests_take_turns_as_in_a_pipeline(
    v2: V2Engines, unspeculated: Observed
) -> None:
    """vLLM starts no pipeline on a CPU; the scheduler's part of one, and the runner's, run here."""
    observed = v2.run(
        small_crowd(), "draft_model", stages=2, adaptive=RANDOM, asynchronous=True, **SMALL
    )
    check_same(observed.answers, unspeculated.answers)
    assert set(observed.verified) >= {0, 1, 2, 3}, "K did not vary"
    assert observed.failures == {}
    assert observed.left == 0


@pytest.mark.long
@pytest.mark.parametrize(("method", "asynchronous"), [("eagle", True), ("draft_model", False)])
def test_tokens_are_the_same_with_two_sources_of_drafts(
    v2: V2Engines, unspeculated: Observed, method: str, asynchronous: bool
) -> None:
    pytest.importorskip("arctic_inference", reason="drafts are looked up by arctic-inference")
    second = {"second_source": {"other_requests": True}}
    options = {"adaptive": RANDOM | second, "asynchronous": asynchronous, **SMALL}
    for _ in range(2):  # the second time all has been said before
        observed = v2.run(small_crowd(), method, **options)
        check_same(observed.answers, unspeculated.answers)
        assert observed.failures == {}
    assert observed.lookup["accepted"] > 20


def test_copied_drafts_go_on_without_the_drafter(v2: V2Engines, unspeculated: Observed) -> None:
    pytest.importorskip("arctic_inference", reason="drafts are looked up by arctic-inference")
    second = {"second_source": {"other_requests": True}}
    options = {"adaptive": RANDOM | second, "asynchronous": True, **SMALL}
    for _ in range(2):  # the second time all has been said before
        observed = v2.run(small_crowd(), "eagle", policy=CopiesWithoutDrafter(KMAX), **options)
        check_same(observed.answers, unspeculated.answers)
        assert observed.drafter_passes == 0
        assert observed.failures == {}
    assert observed.lookup["accepted"] > 20


def shortened(jobs: list[Job]) -> list[Job]:
    """Fewer requests with fewer tokens, as dense in time: a step is slow in the interpreter."""
    if len(jobs) > 12:
        jobs = jobs[::-3]
    return [
        replace(
            job,
            arrives=job.arrives // 3,
            options=job.options | {"max_tokens": min(job.options.get("max_tokens", 32), 16)},
            abort_at=None if job.abort_at is None else 3 + job.abort_at // 8,
        )
        for job in jobs
    ]


OTHER_TRAFFIC = ("crowded", "with_logprobs", "with_aborts", "with_stops")


@pytest.fixture(scope="module")
def other_answers(v2: V2Engines) -> dict[str, dict[str, Answer]]:
    """The answers to the other traffic without speculation."""
    return {name: v2.run(shortened(SCENARIOS[name]())).answers for name in OTHER_TRAFFIC}


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("scenario", OTHER_TRAFFIC)
def test_tokens_of_the_other_traffic_are_those_without_speculation(
    v2: V2Engines,
    other_answers: dict[str, dict[str, Answer]],
    configuration: tuple[str, dict[str, Any]],
    scenario: str,
) -> None:
    method, options = configuration
    roomy = {name: value for name, value in options.items() if name not in SMALL}
    observed = v2.run(shortened(SCENARIOS[scenario]()), method, **roomy)
    assert observed.failures == {}
    assert observed.left == 0
    assert observed.ragged_steps > 0
    assert observed.preemptions > 0 or scenario != "crowded"
    check_same(observed.answers, other_answers[scenario])


@pytest.mark.long
@pytest.mark.timeout(0)
def test_several_thinking_sections_with_a_budget_give_the_text_of_no_speculation(
    v2: V2Engines,
) -> None:
    """On runner V1 vLLM's own text depends on the number of drafts here: docs/losslessness.md."""
    reasoning = pytest.importorskip("vllm.config.reasoning", reason="this vLLM has no budget")
    thinks = {
        "reasoning_config": reasoning.ReasoningConfig(
            reasoning_start_str=" (", reasoning_end_str=")"
        ),
        **(SMALL | {"max_model_len": 256, "num_gpu_blocks_override": 64}),
    }
    again = "* Classes whose instances can be type arguments to generic c ("
    texts = [again, *(f"{text[:60]} (" for text in prompts(8, 5))]
    free = [Job(f"r{n}", text, n, {"max_tokens": 48}) for n, text in enumerate(texts)]
    bound = [replace(job, options=job.options | {"thinking_token_budget": 5}) for job in free]

    def tokens(observed: Observed) -> dict[str, tuple[int, ...]]:
        return {name: answer.tokens[0] for name, answer in observed.answers.items()}

    want = tokens(v2.run(bound, **thinks))
    without = tokens(v2.run(free, **thinks))
    assert sum(want[name] != without[name] for name in want) >= 3, "budgets change these texts"
    assert tokens(v2.run(bound, "draft_model", **thinks)) == want
    assert tokens(v2.run(bound, "draft_model", adaptive=RANDOM, **thinks)) == want


@pytest.mark.long
@pytest.mark.statistics
@pytest.mark.timeout(0)
def test_distribution_at_temperature(v2: V2Engines, shelf: Any) -> None:
    """The first tokens after the one that comes from the prompt's own pass.

    Greedy drafts: the kernel that samples drafts has a mask the interpreter does not take. The
    target's own distribution is drawn on model runner V1, which is not interpreted.
    """
    batch = LARGEST_BATCH
    jobs = [
        Job(f"{index}-{turn}", text, 0, {"temperature": 0.8, "max_tokens": 4, "n": batch})
        for turn in range(SAMPLES_PER_PROMPT // batch)
        for index, text in enumerate(prompts(2, 31))
    ]
    plain = sample(shelf.get(**ENGINE), 16 * SAMPLES_PER_PROMPT, prompt_count=2)
    shelf.clear()
    speculated = v2.run(
        jobs,
        "draft_model",
        adaptive=RANDOM,
        speculation={"draft_sample_method": "greedy"},
        **ENGINE,
    )
    assert speculated.failures == {}
    assert speculated.accepted > SAMPLES_PER_PROMPT // 2, "speculation hardly ran"
    drawn: list[list[tuple[int, ...]]] = [[] for _ in plain]
    for name, answer in speculated.answers.items():
        drawn[int(name.partition("-")[0])] += answer.tokens
    check_alike(drawn, plain)
