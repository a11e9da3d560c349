"""Output is that of no speculation while K changes at every step, 0 included.

Greedy: token by token. Sampled: by distribution; SGLang on a CPU verifies sampled requests
greedily, and the stand-in lets it take the path of a GPU (stand_in/README.md).
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from records import by_request, outcomes, plans, read, read_settled, settled_status, status
from samples import COMPARISONS, LEVEL, PROMPTS, SAMPLES_PER_PROMPT, p_values, sample
from serving import KMAX, LADDER
from traffic import SCENARIOS

from adaptive_spec.adapters.sglang.facts import SOURCE
from tests.chi_square import p_value

pytestmark = pytest.mark.engine

ALGORITHMS = [
    pytest.param("EAGLE", marks=pytest.mark.every_version),
    pytest.param("EAGLE3", marks=pytest.mark.long),
    pytest.param("STANDALONE", marks=pytest.mark.long),
    # The one of http/test_server.py.
    pytest.param("ADAPTIVE_NGRAM", marks=[pytest.mark.long, pytest.mark.every_version]),
]

all_algorithms = pytest.mark.parametrize("served", ALGORITHMS, indirect=True)
"""In one order everywhere, so that pytest runs the tests of one engine together."""


class Served:
    """An engine whose K changes at every step, and what it answered."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.answers: dict[str, Any] = {}
        since = len(read_settled(engine.record_file))
        for make in SCENARIOS.values():
            self.answers |= engine.run(make())
        self.record = read_settled(engine.record_file, since)


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest, reference: dict[str, Any], shelf: Any, cycle: dict[str, Any]
) -> Served:
    return Served(shelf.get(request.param, adaptive=cycle))


@all_algorithms
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_tokens_are_those_without_speculation(
    served: Served, reference: dict[str, Any], scenario: str
) -> None:
    for job in SCENARIOS[scenario]():
        got, expected = served.answers[job.name], reference[job.name]
        assert got.tokens == expected.tokens, job.name
        assert got.text == expected.text, job.name
        assert got.reason == expected.reason, job.name


@all_algorithms
def test_every_k_ran_and_changed_at_every_step(served: Served) -> None:
    ran = {line["step"]: line["depth"] for line in outcomes(served.record) if line["ids"]}
    asked = {line["step"]: line for line in plans(served.record) if line["step"] in ran}
    free = [step for step, line in asked.items() if max(line["available"]) >= line["k"]]
    assert len(free) > 0.9 * len(asked) > 90, "K should hardly ever have been limited"
    assert [ran[step] for step in free] == [asked[step]["k"] for step in free]
    assert {ran[step] for step in free} == set(LADDER)
    following = [(step, step + 1) for step in free if step + 1 in free]
    assert all(ran[one] != ran[other] for one, other in following)


@all_algorithms
def test_acceptance_by_request_is_what_sglang_counts(served: Served) -> None:
    told = by_request(served.record)
    for name, answer in served.answers.items():
        own = answer.meta
        if "spec_verify_ct" not in own or answer.meta.get("num_retractions"):
            continue
        seen = told.get(name, {"steps": 0, "accepted": 0})
        # A plan made before a request joined does not cover its first step.
        unseen = own["spec_verify_ct"] - seen["steps"]
        assert unseen in (0, 1), name
        assert 0 <= own["spec_num_correct_drafts"] - seen["accepted"] <= unseen * KMAX, name
    assert sum(totals["accepted"] for totals in told.values()) > 100


@pytest.mark.parametrize("served", [ALGORITHMS[0]], indirect=True)
def test_sglangs_own_rate_divides_by_the_k_of_the_launch(served: Served) -> None:
    """docs/operate.md, "The engine's own acceptance"; `pytest -s` prints both rates."""
    told = by_request(served.record)
    verified = sum(totals["verified"] for totals in told.values())
    accepted = sum(totals["accepted"] for totals in told.values())
    rates = [
        answer.meta["spec_accept_rate"]
        for answer in served.answers.values()
        if "spec_accept_rate" in answer.meta
    ]
    own = sum(rates) / len(rates)
    print(f"SGLang's rate {own:.2f}, accepted of verified {accepted / verified:.2f}")
    assert own < 0.8 * accepted / verified
    mean_k = verified / sum(totals["steps"] for totals in told.values())
    assert mean_k < 0.8 * KMAX, "K was that of the launch"


@all_algorithms
def test_memory_ran_out_and_requests_were_put_back(served: Served) -> None:
    assert "Retract requests" in served.engine.log


@all_algorithms
def test_nothing_failed(served: Served) -> None:
    assert "Switch adaptive runtime state" not in served.engine.log, "one line per switch floods it"
    assert served.engine.log.count("adaptive_spec: mode=on") == 1
    assert status(served.engine.status_file)["fail_opens"] == {}
    assert "Traceback" not in served.engine.log


def samples_on_a_cpu() -> bool:
    """Whether the stand-in can let this SGLang verify sampled requests by sampling."""
    folder = SOURCE.installed_folder()
    assert folder is not None
    code = (folder / "srt/speculative/eagle_utils.py").read_text(encoding="utf-8")
    return "def _verify_uses_greedy(" in code


@pytest.mark.long  # vLLM's test_sequence_distribution.py draws in every run
@all_algorithms
def test_sampled_output_has_the_distribution_without_speculation(
    served: Served, unspeculated: Any
) -> None:
    if not samples_on_a_cpu():
        pytest.skip("this SGLang verifies greedily on a CPU: no `_verify_uses_greedy`")
    since = len(read(served.engine.record_file))
    speculated = sample(served.engine)
    told = by_request(read_settled(served.engine.record_file, since))
    assert sum(totals["accepted"] for totals in told.values()) > 200, "speculation hardly ran"
    values = p_values(speculated, unspeculated)
    assert len(values) == COMPARISONS
    assert min(values) > LEVEL, values


@pytest.mark.parametrize("served", ["EAGLE"], indirect=True)
def test_a_raising_policy_leaves_the_server_correct(
    served: Served, reference: dict[str, Any]
) -> None:
    """The last test of its engine, for the policy is benched then."""
    engine = served.engine
    before = status(engine.status_file)
    accepted = 0
    for make in SCENARIOS.values():
        jobs = make()
        answers = engine.run([replace(job, name=f"fails-{job.name}") for job in jobs])
        for job in jobs:
            answer = answers[f"fails-{job.name}"]
            assert answer.tokens == reference[job.name].tokens, job.name
            accepted += answer.meta.get("spec_num_correct_drafts", 0)
    assert accepted > 100, "SGLang's own speculation should go on"
    found = settled_status(engine.status_file, before["steps"] + 100)
    assert set(found["fail_opens"]) == {
        f"{method} raised RuntimeError" for method in ("plan", "observe", "forget")
    }
    assert found["benched"]
    modes = Counter(found["steps_by_mode"]) - Counter(before["steps_by_mode"])
    assert modes["engine"] > 100, "a step without a plan runs SGLang's own K"
    said = [line for line in engine.log.splitlines() if "planned failure" in line]
    assert len(said) == 3, "once for each method"


@pytest.mark.long
def test_greedy_output_in_place_of_sampled_would_be_noticed(unspeculated: Any) -> None:
    pairs = []
    for plain in unspeculated:
        seen = Counter(tuple(tokens[1:3]) for tokens in plain)
        likely = seen.most_common(1)[0][0]
        pairs.append((Counter({likely: SAMPLES_PER_PROMPT}), seen))
    assert p_value(pairs) < 1e-12


def test_a_bias_of_a_fifth_would_be_noticed_and_none_isnt() -> None:
    """With as many samples as are drawn from an engine, at the level that is used for it."""
    draw = random.Random(1).choices

    def drawn(weights: list[float]) -> Counter[str]:
        return Counter(draw("abcd", weights, k=SAMPLES_PER_PROMPT))

    right, biased = [4, 3, 2, 1], [6, 2.5, 1, 0.5]
    for _ in range(20):
        assert p_value([(drawn(right), drawn(right)) for _ in range(PROMPTS)]) > LEVEL
        assert p_value([(drawn(right), drawn(biased)) for _ in range(PROMPTS)]) < LEVEL
