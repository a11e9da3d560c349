"""n-gram drafts on model runner V2, which always makes Kmax of them: its kernels interpreted."""

from pathlib import Path
from typing import Any

import pytest
from engines import KMAX, RANDOM, check_same
from switchable_policies import FixedPolicy
from v2_engines import SMALL, Observed, V2Engines, small_crowd
from v2_ngram import look_up, notes_at_start

from adaptive_spec.adapters.vllm.text_matches import FEW

pytestmark = pytest.mark.engine

SPECULATION = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}


def ends_of(text: list[int], n: int) -> list[int]:
    """Where the last n tokens of a text stand before, as the index of what follows them."""
    last = text[len(text) - n :]
    return [at + n for at in range(len(text) - n) if text[at : at + n] == last]


def test_both_runners_find_the_same_length_v1_its_first_and_v2_its_last_occurrence(
    v2: V2Engines,
) -> None:
    matched = different = 0
    for each in v2.call(look_up, 120, 4, 3):
        lengths = range(each.shortest, min(each.longest, len(each.text) - 1) + 1)
        places = next((p for n in reversed(lengths) if (p := ends_of(each.text, n))), [])
        assert (each.shown > FEW) == bool(places)
        if not places:
            assert each.first == []
            assert each.second == [each.text[-1]] * 4  # fillers
            continue
        assert each.first == each.text[places[0] :][:4]
        drafts = each.text[places[-1] :][:4]
        assert each.second == drafts + [each.text[-1]] * (4 - len(drafts))
        matched += 1
        different += each.first != drafts
    assert matched > 40
    assert different > 20


def test_it_says_which_method_keeps_asynchronous_scheduling(
    v2: V2Engines, models: dict[str, Path]
) -> None:
    (fixed,) = v2.call(notes_at_start, models, "ngram_gpu")
    assert "draft depth is fixed with ngram_gpu on model runner V2" in fixed
    notes = v2.call(notes_at_start, models, "ngram")
    assert "method ngram_gpu looks up the same" in notes[-1]


@pytest.fixture(scope="module")
def unspeculated(v2: V2Engines) -> Observed:
    return v2.run(small_crowd(), **SMALL)


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"adaptive": RANDOM, "asynchronous": request.param, "speculation": SPECULATION, **SMALL}


def method(options: dict[str, Any]) -> str:
    """vLLM's method: the same drafter, with asynchronous scheduling under another name."""
    return "ngram_gpu" if options["asynchronous"] else "ngram"


@pytest.mark.long  # the fillers' test compares tokens, too
def test_tokens_are_those_without_speculation(
    v2: V2Engines, options: dict[str, Any], unspeculated: Observed
) -> None:
    observed = v2.run(small_crowd(), method(options), **options)
    assert observed.runner == "vllm.v1.worker.cpu.model_runner"
    assert observed.capability == ("VERIFY", False, "")
    check_same(observed.answers, unspeculated.answers)
    assert observed.failures == {}
    assert observed.left == 0
    assert observed.accepted > 0, "no draft was ever accepted"
    assert set(observed.verified) >= {0, 1, 2, 3}, "K did not vary"


def test_fillers_are_not_verified_where_the_text_is_whole(
    v2: V2Engines, options: dict[str, Any], unspeculated: Observed
) -> None:
    observed = v2.run(small_crowd(), method(options), policy=FixedPolicy(KMAX), **options)
    check_same(observed.answers, unspeculated.answers)
    share = observed.accepted / sum(observed.verified)
    none = observed.verified.count(0) / len(observed.verified)
    if options["asynchronous"]:
        assert none < 0.1  # only at the end of a request
        assert 0.0 < share < 0.3
    else:
        assert none > 0.3
        assert share > 0.3
